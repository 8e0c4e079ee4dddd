//! The table: what was measured, beside what was wanted.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

/// What came of one row.
#[derive(Debug)]
enum Outcome {
    Met,
    Missed,
    /// No target: a figure to compare with.
    Figure,
    /// Not measured.
    Failed,
}

#[derive(Debug)]
struct Row {
    name: String,
    measured: String,
    target: String,
    outcome: Outcome,
}

/// All rows, in order. Each is also told on standard error as soon as it is there, since a run takes minutes.
#[derive(Debug)]
pub(crate) struct Table {
    begun: Instant,
    machine: String,
    rows: Vec<Row>,
}

impl Table {
    /// `machine` stands above it: what the figures depend on.
    pub(crate) fn new(machine: String) -> Self {
        Self { begun: Instant::now(), machine, rows: Vec::new() }
    }

    /// A figure with a target.
    pub(crate) fn judged(&mut self, name: &str, measured: String, target: &str, met: bool) {
        self.add(name, measured, target, if met { Outcome::Met } else { Outcome::Missed });
    }

    /// A figure without one.
    pub(crate) fn figure(&mut self, name: &str, measured: String) {
        self.add(name, measured, "", Outcome::Figure);
    }

    /// Repetitions of a time, judged by their median.
    pub(crate) fn times(&mut self, name: &str, samples: &[Duration], limit: Option<Duration>) {
        let Some(Spread { min, median, max }) = Spread::of(samples) else {
            self.add(name, "no repetition".to_owned(), "", Outcome::Failed);
            return;
        };
        let [min, median_text, max] = [min, median, max].map(|time| format!("{:.3}", time.as_secs_f64()));
        let measured = format!("median {median_text} s (min {min}, max {max}, n {})", samples.len());
        match limit {
            Some(limit) => {
                self.judged(name, measured, &format!("<= {} s", limit.as_secs_f64()), median <= limit);
            }
            None => self.figure(name, measured),
        }
    }

    /// Something that could not be measured.
    pub(crate) fn failed(&mut self, name: &str, error: &anyhow::Error) {
        self.add(name, format!("{error:#}"), "", Outcome::Failed);
    }

    /// Whether all was measured.
    pub(crate) fn complete(&self) -> bool {
        !self.rows.iter().any(|row| matches!(row.outcome, Outcome::Failed))
    }

    /// Prints it on standard output.
    pub(crate) fn print(&self) -> io::Result<()> {
        let width = |cell: fn(&Row) -> &str| self.rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0);
        let (name, measured, target) = (width(|row| &row.name), width(|row| &row.measured), width(|row| &row.target));
        let mut out = io::stdout().lock();
        writeln!(out, "{}", self.machine)?;
        writeln!(out, "{:name$}  {:measured$}  {:target$}", "NAME", "MEASURED", "TARGET")?;
        for row in &self.rows {
            let outcome = row.outcome.text();
            writeln!(out, "{:name$}  {:measured$}  {:target$}  {outcome}", row.name, row.measured, row.target)?;
        }
        out.flush()
    }

    fn add(&mut self, name: &str, measured: String, target: &str, outcome: Outcome) {
        let after = self.begun.elapsed().as_secs();
        // A run whose terminal has closed still has its table to print elsewhere.
        let _ = writeln!(io::stderr(), "{after:4} s  {name}: {measured}  {target}  {}", outcome.text());
        self.rows.push(Row { name: name.to_owned(), measured, target: target.to_owned(), outcome });
    }
}

impl Outcome {
    fn text(&self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Figure => "",
            Self::Failed => "NOT MEASURED",
        }
    }
}

/// Smallest, middle and largest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread<T> {
    pub(crate) min: T,
    pub(crate) median: T,
    pub(crate) max: T,
}

impl<T: Copy + PartialOrd> Spread<T> {
    /// `None` without a value. Of an even number, the upper one of the middle two: nothing is made to look better.
    pub(crate) fn of(values: &[T]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        Some(Self { min: *sorted.first()?, median: *sorted.get(sorted.len() / 2)?, max: *sorted.last()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_middle() {
        assert_eq!(Spread::of(&[3, 1, 2]), Some(Spread { min: 1, median: 2, max: 3 }));
        assert_eq!(Spread::of(&[4, 1, 2, 3]), Some(Spread { min: 1, median: 3, max: 4 }));
        assert_eq!(Spread::<u8>::of(&[]), None);
    }

    #[test]
    fn a_missed_target_is_a_row_and_a_missing_figure_a_failure() {
        let mut table = Table::new(String::new());
        table.times("late", &[Duration::from_secs(2)], Some(Duration::from_secs(1)));
        assert!(matches!(table.rows[0].outcome, Outcome::Missed));
        assert!(table.complete());
        table.times("never", &[], Some(Duration::from_secs(1)));
        assert!(!table.complete());
    }
}
