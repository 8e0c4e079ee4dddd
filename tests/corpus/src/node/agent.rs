//! What the agent does with the judge's word: requests, restarts, and what is said.

use super::*;
use crate::course::show;
use storewatch::recording::Mark;
use storewatch_core::{
    snapshot::{PodView, Snapshot},
    verdict::{Finding, Reason, Remedy, Status, Verdict},
};

impl Node {
    pub(super) fn advance(&mut self) {
        let advance = self.judge.advance(self.now);
        self.watchers.iter_mut().for_each(|watcher| watcher.judged(self.now, advance.snapshot.as_ref()));
        // Before anything else is observed, as the engine does.
        self.watch();
        self.events.extend(advance.events);
        for request in advance.requests {
            match request {
                Request::Targets { targets, .. } => {
                    self.targets = targets;
                    for target in self.targets.clone() {
                        if let Ok(ip) = target.address.host.parse() {
                            self.resolved.insert(target.id.key, SocketAddr::new(ip, target.address.port));
                        }
                    }
                    self.dns();
                    self.schedule(self.now, Event::Round);
                }
                Request::Round { .. } => {
                    self.next_round = self.now;
                    self.schedule(self.now, Event::Round);
                }
                Request::Contrast { target, remote } => {
                    let ping = self.ping(target, Some(remote), Purpose::Contrast, true);
                    self.schedule(ping.ended, Event::Ping(ping));
                }
                Request::Inventory => {
                    self.schedule(self.now + Duration::from_millis(5), Event::Sample { repeat: false })
                }
                Request::Processes(pids) => {
                    self.asked = pids;
                    self.schedule(self.now + Duration::from_millis(2), Event::Look { repeat: false });
                }
                Request::PodsPresent { .. } | Request::Ports(_) | Request::Selected { .. } => {}
            }
        }
        if let Some(snapshot) = advance.snapshot {
            self.tell(&snapshot);
        }
        if let Some(next) = advance.next {
            assert!(next > self.now, "the judge must not ask to be called in the past: it would spin");
            if let Some(key) = self.wake.take() {
                self.queue.remove(&key);
            }
            self.schedule(next, Event::Wake);
            self.wake = Some((next, self.sequence));
        }
    }

    pub(super) fn restart(&mut self, away: Duration) {
        // What was observed at this instant is judged before the end.
        self.advance();
        self.watchers.iter_mut().for_each(watch::Watcher::end);
        let before = self.judge.snapshot(self.now);
        let memory = self.judge.memory(self.now);
        self.now = self.now + away;
        self.judge = Judge::new(settings(&self.script), self.now);
        self.judge.restore(memory, self.now);
        self.targets.clear();
        self.kept.clear();
        self.counts.clear();
        self.latest.clear();
        self.held_details.clear();
        self.asked.clear();
        self.in_flight = 0;
        self.next_round = self.now;
        self.queue.retain(|_, event| {
            !matches!(
                event,
                Event::Round | Event::Ping(_) | Event::RoundEnd(_) | Event::Pd | Event::PdEnd(_) | Event::Detail(_)
            )
        });
        self.advance();
        self.check_restart(&before, away);
        self.source(SourceName::Inventory, SourceState::Active);
        self.list();
        self.schedule(self.now + Duration::from_millis(20), Event::Pd);
        self.schedule(self.now + Duration::from_millis(40), Event::Round);
        self.schedule(self.now + Duration::from_millis(60), Event::Sample { repeat: false });
    }

    fn tell(&mut self, snapshot: &Snapshot) {
        self.check(snapshot);
        let at = seconds(snapshot.taken_at);
        let news: Vec<Told> = self.timeline.follow(snapshot).into_iter().map(|(told, _)| told).collect();
        self.course.add(at, &news);
        let mut carried: Vec<String> =
            snapshot.pods.iter().filter(|pod| pod.verdict.carried).map(|pod| pod.record.pod.name.to_string()).collect();
        let node = snapshot.clusters.iter().any(|cluster| cluster.readiness.verdict.carried);
        carried.extend(node.then(|| NODE.to_owned()));
        let over: Vec<_> = self.carried.keys().filter(|name| !carried.contains(name)).cloned().collect();
        for name in over {
            let from = seconds(self.carried.remove(&name).unwrap());
            self.course.carried.entry(name).or_default().push(Span { from, to: Some(at) });
        }
        for name in carried {
            self.carried.entry(name).or_insert(snapshot.taken_at);
        }
    }

    pub(super) fn finish(&mut self) {
        self.course.end = self.seconds();
        for (name, from) in std::mem::take(&mut self.carried) {
            self.course.carried.entry(name).or_default().push(Span { from: seconds(from), to: None });
        }
        for pod in &self.judge.snapshot(self.now).pods {
            for view in &pod.targets {
                let target = view.target.map_or_else(|| "other".to_owned(), |target| target.to_string());
                let counts = self.course.counts.entry((pod.record.pod.name.to_string(), target)).or_default();
                let connects = view.connects.iter().map(|(outcome, count)| (outcome.as_str().to_owned(), *count));
                let endings =
                    view.endings.iter().map(|(outcome, count)| (format!("ended:{}", outcome.as_str()), *count));
                let others = [
                    ("rst:received", view.resets_received),
                    ("rst:sent", view.resets_sent),
                    ("retransmits", view.retransmits),
                ];
                let others = others.map(|(what, count)| (what.to_owned(), count));
                for (what, count) in connects.chain(endings).chain(others) {
                    *counts.entry(what).or_default() += count;
                }
            }
        }
    }

    /// A restart is no evidence: what was known is known, since the same instant, before anything has been observed.
    fn check_restart(&self, before: &Snapshot, away: Duration) {
        let after = self.judge.snapshot(self.now);
        for ((name, before), (_, after)) in subjects(before).into_iter().zip(subjects(&after)) {
            let (was, is) = (before.verdict, after.verdict);
            let kept = was.status != Status::Unknown || was.reason == Reason::Maintenance;
            assert!(
                !kept || (was.reason, was.since) == (is.reason, is.since),
                "{:.3}: {name} was {was:?} before the restart and is {is:?} after it",
                self.seconds()
            );
            if away > Duration::ZERO || !kept {
                continue;
            }
            let since = |findings: &[Finding]| -> BTreeMap<String, MonoTime> {
                findings.iter().map(|finding| (show(&Mark::of(finding)), finding.since)).collect()
            };
            let (was, is) = (since(before.findings), since(after.findings));
            assert_eq!(was, is, "{:.3}: findings about {name} before and after a restart", self.seconds());
        }
    }

    /// What holds of every snapshot.
    fn check(&self, snapshot: &Snapshot) {
        let passive =
            |pod: &PodView| matches!(pod.verdict.reason, Reason::PodCannotReachStores | Reason::StaleTransport);
        let guarded = self.script.count("min_other_ready", 1) > 0;
        for pod in &snapshot.pods {
            let verdict = &pod.verdict;
            assert_eq!(verdict.status, verdict.reason.status());
            // Served without authentication: no address, no host.
            let message = &verdict.message;
            assert!(!message.contains("10.0.") && !message.contains("store-"), "{message}");
            let silent = message.starts_with("0 of ");
            assert!(
                !silent || verdict.status == Status::NotReady,
                "{:.3}: {:?}: {message}",
                self.seconds(),
                verdict.reason
            );
            let held = |other: &&PodView| {
                other.record.uid != pod.record.uid
                    && other.record.workload == pod.record.workload
                    && other.verdict.status == Status::Ready
            };
            if passive(pod) && guarded {
                assert!(
                    snapshot.pods.iter().any(|other| held(&other)),
                    "{:.3}: {} left on passive evidence and nobody is ready\n{}",
                    self.seconds(),
                    pod.record.pod,
                    self.course.show()
                );
            }
        }
    }
}

/// What is said of somebody.
struct Said<'a> {
    verdict: &'a Verdict,
    findings: &'a [Finding],
}

/// The node, then the pods by their names.
fn subjects(snapshot: &Snapshot) -> Vec<(String, Said<'_>)> {
    let node = snapshot.clusters.iter().map(|cluster| {
        let readiness = &cluster.readiness;
        (NODE.to_owned(), Said { verdict: &readiness.verdict, findings: &readiness.findings })
    });
    let pods = snapshot
        .pods
        .iter()
        .map(|pod| (pod.record.pod.name.to_string(), Said { verdict: &pod.verdict, findings: &pod.findings }));
    node.chain(pods).collect()
}

impl Node {
    /// All that is said about a pod (or the node) and its findings, in full.
    pub(super) fn words(&mut self, name: &str) {
        let snapshot = self.judge.snapshot(self.now);
        let pod = snapshot.pods.iter().find(|pod| &*pod.record.pod.name == name);
        let (verdict, findings, remedy) = match (pod, snapshot.clusters.first()) {
            (Some(pod), _) => (&pod.verdict, &pod.findings, pod.remedy.as_ref()),
            (None, Some(cluster)) => (&cluster.readiness.verdict, &cluster.readiness.findings, None),
            (None, None) => panic!("there is no {name}"),
        };
        let advice = |Remedy { now, prevent }: &Remedy| [format!("  now: {now}"), format!("  prevent: {prevent}")];
        let mut lines = vec![format!("{} {}: {}", verdict.status.as_str(), verdict.reason.as_str(), verdict.message)];
        lines.extend(remedy.into_iter().flat_map(advice));
        for finding in findings {
            let carried = if finding.carried { " carried" } else { "" };
            lines.push(format!("{}{carried}", show(&Mark::of(finding))));
            lines.extend([format!("  {}", finding.message), format!("  {}", finding.evidence)]);
            lines.extend(advice(&finding.remedy));
        }
        self.course.words.push((name.to_owned(), self.seconds(), lines));
    }
}
