//! The effective configuration as YAML that reads back to the same [`Config`].

use super::{
    Cluster, Config,
    read::{FORMATS, HEALING, KERNEL, LEVELS, ON_UNKNOWN, SOURCES, STALE, SWITCH},
    value::duration,
};
use serde_json::{Map, Value, json};
use std::{fmt::Display, net::SocketAddr, path::Path};

impl Config {
    /// Every key with its value, in the order of the documentation.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        for (name, value) in self.sections() {
            write(&mut out, 0, name, &value);
        }
        out
    }

    /// The same as one JSON object.
    pub fn to_json(&self) -> Value {
        let nested = self.sections().into_iter().map(|(name, value)| match value {
            Yaml::Section(entries) => (
                name.to_owned(),
                Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ),
            Yaml::Sections(list) => {
                let objects = list.into_iter().map(|entries| {
                    Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
                });
                (name.to_owned(), Value::Array(objects.collect()))
            }
            Yaml::Scalar(value) => (name.to_owned(), value),
        });
        Value::Object(nested.collect::<Map<_, _>>())
    }

    fn sections(&self) -> Vec<(&'static str, Yaml)> {
        let Self { node, listen, clusters, ping, pods, kubernetes, healing, kernel, verdict, state_file, log } = self;
        let short = match clusters.as_slice() {
            [cluster] if &*cluster.name == "default" && cluster.selector == pods.selector => Some(cluster),
            _ => None,
        };
        let state_file = state_file.as_deref().map_or_else(String::new, |path| path.display().to_string());
        let clusters = match short {
            Some(cluster) => ("hugegraph", Yaml::Section(targets(cluster))),
            None => ("clusters", Yaml::Sections(clusters.iter().map(entry).collect())),
        };
        vec![
            ("node", Yaml::Scalar(json!(&**node))),
            (
                "listen",
                Yaml::Section(vec![
                    ("probe", text(listen.probe)),
                    ("metrics", address(listen.metrics)),
                    ("admin", address(listen.admin)),
                    (
                        "admin_socket",
                        text(listen.admin_socket.as_deref().map_or(Path::new("off"), |path| path).display()),
                    ),
                ]),
            ),
            clusters,
            (
                "ping",
                Yaml::Section(vec![
                    ("interval", text(duration(ping.interval))),
                    ("idle_interval", text(duration(ping.idle_interval))),
                    ("pd_interval", text(duration(ping.pd_interval))),
                    ("dns_interval", text(duration(ping.dns_interval))),
                    ("timeout", text(duration(ping.timeout))),
                    ("max_stores_per_round", json!(ping.max_stores_per_round)),
                ]),
            ),
            (
                "pods",
                Yaml::Section(vec![
                    ("source", word(&SOURCES, pods.source)),
                    ("selector", text(&pods.selector)),
                    ("file", text(pods.file.display())),
                    ("cri_socket", text(pods.cri_socket.display())),
                ]),
            ),
            (
                "kubernetes",
                Yaml::Section(vec![
                    ("namespaces", json!(short.map(|cluster| cluster.namespaces.as_slice()).unwrap_or_default())),
                    ("store_selector", text(&kubernetes.store_selector)),
                    ("pd_selector", text(&kubernetes.pd_selector)),
                    ("readiness_gate", word(&SWITCH, kubernetes.readiness_gate)),
                    ("events", word(&SWITCH, kubernetes.events)),
                ]),
            ),
            ("healing", Yaml::Section(vec![("mode", word(&HEALING, *healing))])),
            (
                "kernel",
                Yaml::Section(vec![
                    ("mode", word(&KERNEL, kernel.mode)),
                    ("inventory_interval", text(duration(kernel.inventory_interval))),
                ]),
            ),
            (
                "verdict",
                Yaml::Section(vec![
                    ("failure_threshold", json!(verdict.failure_threshold)),
                    ("success_threshold", json!(verdict.success_threshold)),
                    ("window", text(duration(verdict.window))),
                    ("stale_suspect_after", text(duration(verdict.stale_suspect_after))),
                    ("stale_confirm_after", text(duration(verdict.stale_confirm_after))),
                    ("stale_transport", word(&STALE, verdict.stale_transport)),
                    ("min_other_ready", json!(verdict.min_other_ready)),
                    ("on_unknown", word(&ON_UNKNOWN, verdict.on_unknown)),
                ]),
            ),
            ("state_file", text_scalar(state_file)),
            ("log", Yaml::Section(vec![("level", word(&LEVELS, log.level)), ("format", word(&FORMATS, log.format))])),
        ]
    }
}

type Entries = Vec<(&'static str, Value)>;

/// As much of YAML's shapes as the configuration has.
enum Yaml {
    Scalar(Value),
    Section(Entries),
    Sections(Vec<Entries>),
}

fn targets(cluster: &Cluster) -> Entries {
    let list =
        |targets: &[storewatch_core::id::HostPort]| json!(targets.iter().map(ToString::to_string).collect::<Vec<_>>());
    vec![
        ("pd_peers", list(&cluster.pd_peers)),
        ("stores", list(&cluster.stores)),
        ("store_port", json!(cluster.store_port)),
        ("pd_port", json!(cluster.pd_port)),
    ]
}

fn entry(cluster: &Cluster) -> Entries {
    let mut entries = vec![("name", json!(&*cluster.name))];
    entries.extend(targets(cluster));
    entries.push(("namespaces", json!(cluster.namespaces)));
    entries.push(("selector", text(&cluster.selector)));
    entries
}

fn text(value: impl Display) -> Value {
    Value::String(value.to_string())
}

fn text_scalar(value: String) -> Yaml {
    Yaml::Scalar(Value::String(value))
}

fn address(address: Option<SocketAddr>) -> Value {
    address.map_or_else(|| json!("off"), text)
}

fn word<T: PartialEq>(words: &[(&'static str, T)], value: T) -> Value {
    words.iter().find(|(_, candidate)| *candidate == value).map_or(Value::Null, |(word, _)| json!(word))
}

/// Values are written in JSON's notation, which is YAML's too, except that plain words stay without quotes.
fn write(out: &mut String, indent: usize, name: &str, value: &Yaml) {
    let pad = " ".repeat(indent);
    match value {
        Yaml::Scalar(value) => out.push_str(&format!("{pad}{name}: {}\n", scalar(value))),
        Yaml::Section(entries) => {
            out.push_str(&format!("{pad}{name}:\n"));
            for (key, value) in entries {
                out.push_str(&format!("{pad}  {key}: {}\n", scalar(value)));
            }
        }
        Yaml::Sections(list) => {
            out.push_str(&format!("{pad}{name}:\n"));
            for entries in list {
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(&format!("{pad}  {} {key}: {}\n", if index == 0 { "-" } else { " " }, scalar(value)));
                }
            }
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether every YAML reader takes `text` for this text without quotes: no other type, no indicator.
fn is_plain(text: &str) -> bool {
    let words = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    let first = text.starts_with(|char: char| char.is_ascii_lowercase() || char == '/');
    let duration = super::value::parse_duration(text).is_ok();
    let inner =
        |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '/' | '_' | '.' | '-');
    (first || duration) && text.chars().all(inner) && !words.contains(&text)
}
