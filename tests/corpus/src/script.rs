//! The language of what happens: one step a line, `SECONDS COMMAND ARGUMENTS`.
//!
//! `#` begins a comment. `set KEY VALUE` changes a setting of the judge. `every STEP from A to B [xN]: COMMAND` repeats (N
//! times at once).
//! `SECONDS end` is the last step.
//!
//! | Command | What happens |
//! |---|---|
//! | `cluster N` | PD lists `store-1` to `store-N` by name, at 10.0.0.1 to 10.0.0.N, and all is well |
//! | `stores N` | the same, listed by their addresses |
//! | `pd up ID=HOST[:PORT][/STATE]..` | PD answers with this list; `pd empty`, `down`, `noleader`, `refused` |
//! | `dns NAME ADDRESS..` | the name's answer; `nx`, `silent` |
//! | `host ADDRESS serves [NAME]` | a Store (that calls itself NAME); `refused`, `silent`, `gone` (no host), `hung`, `proxy`, `denied` |
//! | `pods NAME[%UID]@CGROUP[+CGROUP][:WORKLOAD][,FLAG]..` | the list of pods; flags `host`, `pid=N`, `nocgroup`, `maintenance` |
//! | `client WHO HANDLE TARGET [TTL]` | a gRPC channel that resolves once, or again after TTL seconds |
//! | `dial WHO ADDRESS HOW [HANDLE]` | one dial; `auto` lets the world decide, see [`crate::node`] for the others |
//! | `storm WHO ADDRESS HOW N` | N dials at once, counted and not told one by one |
//! | `have WHO ADDRESS HANDLE` | a connection older than the agent |
//! | `flow`, `quiet`, `stick HANDLE` | data arrives from now on; or nothing; or what was written is not acknowledged |
//! | `close HANDLE HOW` | it ends |
//! | `exit WHO` | the process ends, and all its connections |
//! | `process WHO PID [java] [ttl=N] [cache=N] [manager] [cut]` | a process begins and dials from now on; its command line cannot be read, or says this (`cut`: not to its end) |
//! | `as WHO PID` | from now on this process of several dials |
//! | `ends PID` | that process ends; its connections are nobody's |
//! | `exits POD..` | whoever sees all nodes grants these pods their exit |
//! | `words WHOM` | all that is said of a pod, or of the node, at this instant, as `explain` has it |
//! | `block`, `unblock WHO [ADDRESS]` | what it sends (there) is dropped |
//! | `blind on`, `off` | the node's own pings get no answer |
//! | `pause on`, `off` | no ping is sent |
//! | `late` | the round in progress is late by the agent's own doing |
//! | `stop SECONDS` | the agent stands still (SIGSTOP, a starved machine); the world goes on |
//! | `restart SECONDS` | the agent is killed and starts again after that |
//! | `details on`, `off`, `late N`, `backwards` | how single events arrive; counters always do |
//! | `loss SOURCE N [counters]` | so much was lost |
//! | `inventory on`, `off`; `source NAME STATE` | a source is away, or says so |
//!
//! `WHO` is a cgroup's number (in a network namespace of its own), or `cg:N`, `net:N`, `pid:N` alone, `nobody` (the socket
//! told nothing), `summed` (counted with everything that is not selected).

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

/// One command at one time.
#[derive(Clone, Debug)]
pub struct Step {
    /// When, since the begin.
    pub at: Duration,
    /// Where it stands, for complaints.
    pub place: String,
    /// The command and its arguments.
    pub words: Vec<String>,
}

impl Step {
    /// The argument at `index`.
    ///
    /// # Panics
    /// When it is missing, with the place; likewise below.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).unwrap_or_else(|| panic!("{}: word {index} is missing", self.place))
    }

    /// The arguments from `from` on.
    pub fn rest(&self, from: usize) -> &[String] {
        self.words.get(from..).unwrap_or_default()
    }

    /// The number at `index`.
    pub fn number(&self, index: usize) -> u64 {
        self.word(index).parse().unwrap_or_else(|_| self.refuse("no number", self.word(index)))
    }

    /// The address at `index`.
    pub fn address(&self, index: usize) -> SocketAddr {
        address(self.word(index)).unwrap_or_else(|| self.refuse("no address", self.word(index)))
    }

    /// Fails with the place.
    pub fn refuse(&self, what: &str, word: &str) -> ! {
        panic!("{}: {what}: {word}", self.place)
    }
}

/// `10.0.0.1` (the Stores' port) or `10.0.0.1:8686`.
pub fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse().ok()?, 8500)))
}

/// What happens, read.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The judge's settings, where they are not the usual ones.
    pub settings: BTreeMap<String, String>,
    /// All steps, in the order of their times.
    pub steps: Vec<Step>,
}

impl Script {
    /// Reads a script; `name` is for complaints.
    ///
    /// # Panics
    /// When a line cannot be read.
    pub fn parse(name: &str, text: &str) -> Self {
        let mut script = Self::default();
        for (line, content) in (1..).zip(text.lines()) {
            let place = format!("{name}:{line}");
            let content = content.split('#').next().unwrap_or_default().trim();
            let words: Vec<String> = content.split_whitespace().map(str::to_owned).collect();
            match words.first().map(String::as_str) {
                None => {}
                Some("set") => {
                    script.settings.insert(words[1].clone(), words[2].clone());
                }
                Some("every") => {
                    let (head, command) = content.split_once(": ").unwrap_or_else(|| panic!("{place}: no `: `"));
                    let head: Vec<_> = head.split_whitespace().collect();
                    let (step, from, to) = (seconds(head[1]), seconds(head[3]), seconds(head[5]));
                    let times = head.get(6).map_or(1, |times| times.trim_start_matches('x').parse().unwrap());
                    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
                    let mut at = from;
                    while at <= to {
                        let one = Step { at, place: place.clone(), words: words.clone() };
                        script.steps.extend(std::iter::repeat_n(one, times));
                        at += step;
                    }
                }
                Some(first) => {
                    let at =
                        first.trim_end_matches('s').parse().unwrap_or_else(|_| panic!("{place}: no time: {first}"));
                    let step = Step { at: Duration::from_secs_f64(at), place, words: words[1..].to_vec() };
                    script.steps.extend(expand(step));
                }
            }
        }
        script.steps.sort_by_key(|step| step.at);
        script
    }

    /// A duration among the settings.
    pub fn setting(&self, key: &str, default: f64) -> Duration {
        self.settings.get(key).map_or(Duration::from_secs_f64(default), |value| seconds(value))
    }

    /// A number among the settings.
    pub fn count(&self, key: &str, default: u32) -> u32 {
        self.settings.get(key).map_or(default, |value| value.parse().unwrap())
    }
}

/// What stands for several steps.
fn expand(step: Step) -> Vec<Step> {
    let named = match step.word(0) {
        "cluster" => true,
        "stores" => false,
        _ => return vec![step],
    };
    let mut list = String::from("pd up");
    let mut texts = Vec::new();
    for n in 1..=step.number(1) {
        if named {
            list.push_str(&format!(" {n}=store-{n}"));
            texts.push(format!("dns store-{n} 10.0.0.{n}"));
            texts.push(format!("host 10.0.0.{n} serves store-{n}"));
        } else {
            list.push_str(&format!(" {n}=10.0.0.{n}"));
            texts.push(format!("host 10.0.0.{n} serves"));
        }
    }
    texts.insert(0, list);
    let words = |text: &String| text.split(' ').map(str::to_owned).collect();
    texts.iter().map(|text| Step { at: step.at, place: step.place.clone(), words: words(text) }).collect()
}

/// `12`, `12.5` or `12.5s`.
///
/// # Panics
/// When it is none.
pub fn seconds(text: &str) -> Duration {
    let number = text.trim_end_matches('s');
    Duration::from_secs_f64(number.parse().unwrap_or_else(|_| panic!("no number of seconds: {text}")))
}
