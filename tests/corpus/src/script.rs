//! The language of the scenario files: one step a line, `SECONDS COMMAND ARGUMENTS`.
//!
//! `#` begins a comment. `every STEP from A to B: COMMAND` repeats. The part after the line `---` is what the judge must
//! have said. Settings stand before the first step, as `set KEY VALUE`.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

/// One command at one time.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) line: usize,
    pub(crate) words: Vec<String>,
}

impl Step {
    /// The argument at `index`, or a failure that names the line.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).unwrap_or_else(|| panic!("line {}: word {index} is missing", self.line))
    }

    pub(crate) fn rest(&self, from: usize) -> &[String] {
        self.words.get(from..).unwrap_or_default()
    }

    pub(crate) fn number(&self, index: usize) -> u64 {
        self.word(index).parse().unwrap_or_else(|_| panic!("line {}: no number: {}", self.line, self.word(index)))
    }

    pub(crate) fn address(&self, index: usize) -> SocketAddr {
        address(self.word(index)).unwrap_or_else(|| panic!("line {}: no address: {}", self.line, self.word(index)))
    }
}

/// `10.0.0.1` (the Stores' port) or `10.0.0.1:8686`.
pub(crate) fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse().ok()?, 8500)))
}

/// A scenario file, read.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) steps: Vec<Step>,
    pub(crate) right: String,
    pub(crate) text: String,
}

impl Script {
    pub(crate) fn parse(text: &str) -> Self {
        let (body, right) = text.split_once("\n---\n").unwrap_or((text, ""));
        let mut script = Self { right: right.into(), text: body.into(), ..Self::default() };
        for (line, content) in (1..).zip(body.lines()) {
            let content = content.split('#').next().unwrap_or_default().trim();
            let words: Vec<String> = content.split_whitespace().map(str::to_owned).collect();
            match words.first().map(String::as_str) {
                None => {}
                Some("set") => {
                    script.settings.insert(words[1].clone(), words[2].clone());
                }
                Some("every") => {
                    let (head, command) = content.split_once(": ").unwrap_or_else(|| panic!("line {line}: no `: `"));
                    let head: Vec<_> = head.split_whitespace().collect();
                    let (step, from, to) = (seconds(head[1]), seconds(head[3]), seconds(head[5]));
                    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
                    let mut at = from;
                    while at <= to {
                        script.steps.push(Step { at, line, words: words.clone() });
                        at += step;
                    }
                }
                Some(first) => {
                    let at = seconds(first);
                    script.steps.push(Step { at, line, words: words[1..].to_vec() });
                }
            }
        }
        script.steps.sort_by_key(|step| step.at);
        script
    }

    /// A duration among the settings.
    pub(crate) fn setting(&self, key: &str, default: f64) -> Duration {
        self.settings.get(key).map_or(Duration::from_secs_f64(default), |value| seconds(value))
    }

    pub(crate) fn count(&self, key: &str, default: u32) -> u32 {
        self.settings.get(key).map_or(default, |value| value.parse().unwrap())
    }
}

/// `12`, `12.5` or `12.5s`.
pub(crate) fn seconds(text: &str) -> Duration {
    let number = text.trim_end_matches('s');
    Duration::from_secs_f64(number.parse().unwrap_or_else(|_| panic!("no number of seconds: {text}")))
}
