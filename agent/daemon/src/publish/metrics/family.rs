//! Series of one family, each once: what falls on the same labels is added up, since a label that stands for several things
//! (`pd` for its peers) must not become two series of one name.

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeCounterValue, EncodeLabelSet, LabelSetEncoder, MetricEncoder},
    metrics::{MetricType, exemplar::Exemplar},
    registry::Unit,
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Write},
};
use storewatch_core::snapshot::Histogram;

/// Names and values, in the order of the contract.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels(Vec<(&'static str, String)>);

impl Labels {
    pub(super) fn new<const N: usize>(pairs: [(&'static str, &str); N]) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name, value.to_owned())).collect())
    }

    /// The same with another label in front, if there is a value.
    pub(super) fn led_by(mut self, name: &'static str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.0.insert(0, (name, value.to_owned()));
        }
        self
    }

    pub(super) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut labels = self.clone();
        labels.0.push((name, value.to_owned()));
        labels
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for (name, value) in &self.0 {
            let mut label = encoder.encode_label();
            let mut key = label.encode_label_key()?;
            key.write_str(name)?;
            let mut text = key.encode_label_value()?;
            // The encoder writes values as they are.
            for character in value.chars() {
                match character {
                    '\\' => text.write_str("\\\\")?,
                    '"' => text.write_str("\\\"")?,
                    '\n' => text.write_str("\\n")?,
                    other => text.write_char(other)?,
                }
            }
            text.finish()?;
        }
        Ok(())
    }
}

/// A family under construction.
pub(super) struct Family<V> {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    series: BTreeMap<Labels, V>,
}

impl<V: Default> Family<V> {
    /// `name` as prometheus-client wants it: without the suffix of its type and without its unit.
    pub(super) fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help, unit: None, series: BTreeMap::new() }
    }

    pub(super) fn in_seconds(mut self) -> Self {
        self.unit = Some(Unit::Seconds);
        self
    }

    fn entry(&mut self, labels: Labels) -> &mut V {
        self.series.entry(labels).or_default()
    }
}

impl Family<u64> {
    /// Counts; a series appears with its first event.
    pub(super) fn add(&mut self, labels: Labels, count: u64) {
        if count > 0 {
            let value = self.entry(labels);
            *value = value.saturating_add(count);
        }
    }

    /// A counter that exists before its first event, because it stands for a whole source.
    pub(super) fn add_always(&mut self, labels: Labels, count: u64) {
        *self.entry(labels) += count;
    }
}

impl<V: EncodeCounterValue> Family<V> {
    pub(super) fn encode_counter(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.series.is_empty() {
            return Ok(());
        }
        let unit = self.unit.as_ref();
        let mut metric = encoder.encode_descriptor(self.name, self.help, unit, MetricType::Counter)?;
        for (labels, value) in &self.series {
            labelled(&mut metric, labels, |metric| metric.encode_counter::<Labels, V, f64>(value, None))?;
        }
        Ok(())
    }
}

impl Family<f64> {
    pub(super) fn set(&mut self, labels: Labels, value: f64) {
        *self.entry(labels) = value;
    }

    pub(super) fn set_flag(&mut self, labels: Labels, value: bool) {
        self.set(labels, f64::from(u8::from(value)));
    }

    pub(super) fn add_to(&mut self, labels: Labels, value: f64) {
        *self.entry(labels) += value;
    }

    pub(super) fn encode_gauge(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.series.is_empty() {
            return Ok(());
        }
        let unit = self.unit.as_ref();
        let mut metric = encoder.encode_descriptor(self.name, self.help, unit, MetricType::Gauge)?;
        for (labels, value) in &self.series {
            labelled(&mut metric, labels, |metric| metric.encode_gauge(value))?;
        }
        Ok(())
    }
}

impl Family<Histogram> {
    /// Adds a histogram; one without a count adds nothing.
    pub(super) fn add_all(&mut self, labels: Labels, from: &Histogram) {
        if from.counts.iter().all(|count| *count == 0) {
            return;
        }
        let sum = self.entry(labels);
        for (to, count) in sum.counts.iter_mut().zip(from.counts) {
            *to = to.saturating_add(count);
        }
        sum.sum += from.sum;
    }

    pub(super) fn encode_histogram(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.series.is_empty() {
            return Ok(());
        }
        let unit = self.unit.as_ref();
        let mut metric = encoder.encode_descriptor(self.name, self.help, unit, MetricType::Histogram)?;
        for (labels, histogram) in &self.series {
            let bounds = Histogram::BOUNDS.into_iter().chain([f64::MAX]);
            let buckets: Vec<_> = bounds.zip(histogram.counts).collect();
            let count = histogram.counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
            let exemplars = None::<&HashMap<usize, Exemplar<Labels, f64>>>;
            labelled(&mut metric, labels, |metric| metric.encode_histogram(histogram.sum, count, &buckets, exemplars))?;
        }
        Ok(())
    }
}

/// Without labels there are no braces either.
fn labelled(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels,
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.0.is_empty() { encode(metric) } else { encode(&mut metric.encode_family(labels)?) }
}

/// An info metric: always 1, the labels are what it says.
pub(super) fn encode_info(
    encoder: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &'static str,
    labels: &Labels,
) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(labels)
}
