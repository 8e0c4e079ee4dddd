//! The commands of a script.

use super::*;
use crate::script;
use storewatch_core::id::PodUid;
use words::{listed, pod};

/// A number that is one of a process.
pub(super) fn small(step: &Step, index: usize) -> u32 {
    u32::try_from(step.number(index)).unwrap_or_else(|_| step.refuse("no process", step.word(index)))
}

impl Node {
    pub(super) fn step(&mut self, step: &Step) {
        match step.word(0) {
            "pods" => {
                self.pods = step.rest(1).iter().map(|text| Arc::new(pod(text))).collect();
                self.list();
            }
            "pd" => {
                self.pd = match step.word(1) {
                    "down" => Pd::Down,
                    "nameless" => Pd::Nameless,
                    "noleader" => Pd::NoLeader,
                    "refused" => Pd::Refused,
                    "empty" => Pd::Up(Vec::new()),
                    "up" => Pd::Up(step.rest(2).iter().map(|text| listed(text)).collect()),
                    other => step.refuse("no such PD", other),
                };
            }
            "dns" => {
                let answer = match step.word(2) {
                    "nx" => Name::Nx,
                    "silent" => Name::Silent,
                    _ => Name::Addresses(step.rest(2).iter().map(|ip| ip.parse().unwrap()).collect()),
                };
                self.names.insert(step.word(1).into(), answer);
            }
            "host" => self.set_host(step),
            "block" | "unblock" => {
                let key = (step.word(1).to_owned(), step.words.get(2).and_then(|text| address(text)));
                if step.word(0) == "block" {
                    self.blocked.insert(key);
                } else {
                    self.blocked.remove(&key);
                }
            }
            "client" => {
                let client = Client {
                    who: step.word(1).into(),
                    to: step.word(3).into(),
                    ttl: step.words.get(4).map(|text| script::seconds(text)),
                    cached: None,
                    connection: None,
                    attempt: 0,
                    next: self.now,
                };
                self.clients.insert(step.word(2).into(), client);
                self.schedule(self.now, Event::Client(step.word(2).into()));
            }
            "dial" => {
                let id = self.dial_as(step.word(1), step.address(2), step.word(3));
                if let Some(handle) = step.words.get(4) {
                    self.handles.insert(handle.clone(), id);
                }
            }
            "storm" => self.storm(step.word(1), step.address(2), step.word(3), step.number(4)),
            "have" => {
                // Older than the agent: nothing was seen of its begin.
                let (details, counts) = (std::mem::replace(&mut self.details, Details::Off), self.counts.clone());
                let id = self.dial_as(step.word(1), step.address(2), "ok");
                (self.details, self.counts) = (details, counts);
                self.connections.get_mut(&id).unwrap().seen_begin = false;
                self.handles.insert(step.word(3).into(), id);
            }
            "flow" | "quiet" | "stick" => {
                let id = *self.handles.get(step.word(1)).unwrap_or_else(|| step.refuse("no such handle", step.word(1)));
                let now = self.now;
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.flows = step.word(0) == "flow";
                    connection.stuck = (step.word(0) == "stick").then_some(now);
                    connection.last_sent = Some(now);
                    if connection.flows {
                        connection.last_received = Some(now);
                    }
                    if connection.stuck.is_some() {
                        self.schedule(now + Duration::from_millis(200), Event::Retransmit { id, count: 1 });
                    }
                }
            }
            "close" => {
                let id = *self.handles.get(step.word(1)).unwrap_or_else(|| step.refuse("no such handle", step.word(1)));
                self.close(id, step.word(2));
            }
            "exit" => {
                let who = step.word(1);
                self.connections.retain(|_, connection| connection.who != who);
                self.clients.retain(|_, client| client.who != who);
            }
            "process" => self.process_begins(step),
            "as" => {
                self.running.insert(step.word(1).into(), small(step, 2));
            }
            "ends" => self.process_ends(small(step, 1)),
            "exits" => {
                let pods = step.rest(1).iter().map(|name| PodUid((**name).into())).collect();
                self.observe(Observation::Exits { at: self.now, pods });
            }
            "words" => self.words(step.word(1)),
            "source" => {
                let name = SourceName::ALL.into_iter().find(|name| name.as_str() == step.word(1)).unwrap();
                let states = [SourceState::Active, SourceState::Degraded, SourceState::Absent];
                let state = states.into_iter().find(|state| state.as_str() == step.word(2)).unwrap();
                self.source(name, state);
            }
            "loss" => {
                let source = SourceName::ALL.into_iter().find(|name| name.as_str() == step.word(1)).unwrap();
                let counters = step.words.get(3).is_some();
                self.observe(Observation::Loss(Loss { source, at: self.now, lost: step.number(2), counters }));
            }
            "details" => {
                self.details = match step.word(1) {
                    "on" => Details::On,
                    "off" => Details::Off,
                    "backwards" => Details::Backwards,
                    "late" => Details::Late(script::seconds(step.word(2))),
                    other => step.refuse("no such way", other),
                }
            }
            "inventory" => self.inventory = step.word(1) == "on",
            "blind" => self.blind = step.word(1) == "on",
            "pause" => {
                self.paused = step.word(1) == "on";
                self.schedule(self.now, Event::Round);
            }
            "late" => self.late = true,
            "stop" => {
                self.stopped_until = self.now + script::seconds(step.word(1));
                self.late = true;
            }
            "restart" => self.restart(script::seconds(step.word(1))),
            other => step.refuse("no such command", other),
        }
    }

    fn set_host(&mut self, step: &Step) {
        let at = step.address(1);
        let identity = step.words.get(3).map(|name| format!("{name}:{}", at.port()).into());
        let host = match step.word(2) {
            "serves" => Host::Serves(identity),
            "denied" => Host::Denied,
            "proxy" => Host::Proxy,
            "refused" => Host::Refused,
            "silent" => Host::Silent,
            "hung" => Host::Hung,
            "gone" => Host::Gone,
            other => step.refuse("no such host", other),
        };
        let lost = host == Host::Refused && self.kept.values().any(|kept| *kept == at);
        self.hosts.insert(at, host);
        if lost {
            // A kept channel that breaks is noticed at once.
            self.next_round = self.now;
            self.schedule(self.now + Duration::from_millis(1), Event::Round);
        }
    }

    pub(super) fn list(&mut self) {
        self.observe(Observation::Pods { at: self.now, pods: self.pods.clone() });
    }
}
