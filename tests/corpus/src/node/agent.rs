//! What the agent does with the judge's word: requests, restarts, and what is said.

use super::*;
use futures_util::FutureExt;
use storewatch_core::{
    snapshot::{PodView, Snapshot},
    verdict::{Reason, Status},
};

impl Node {
    pub(super) fn advance(&mut self) {
        let advance = self.judge.advance(self.now);
        self.tap.judged(self.now, advance.snapshot.as_ref());
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
                // No case says anything of processes.
                Request::Processes(_) | Request::PodsPresent { .. } | Request::Ports(_) | Request::Selected { .. } => {}
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
        self.keep_recording();
    }

    /// Begins the recording when it is time, and takes what came.
    fn keep_recording(&mut self) {
        let Some((from, recording, bytes)) = &mut self.recording else { return };
        if recording.is_none() && self.now >= START + *from {
            *recording = Some(self.recordings.begin().unwrap());
            self.tap.asked().now_or_never().unwrap();
            self.tap.admit(&self.judge, self.now);
        }
        if let Some(recording) = recording {
            while let Some(Some(lines)) = recording.next().now_or_never() {
                bytes.extend(lines);
            }
        }
    }

    pub(super) fn restart(&mut self, away: Duration) {
        let memory = self.judge.memory(self.now);
        self.now = self.now + away;
        self.judge = Judge::new(settings(&self.script), self.now);
        self.judge.restore(memory, self.now);
        self.targets.clear();
        self.kept.clear();
        self.counts.clear();
        self.latest.clear();
        self.held_details.clear();
        self.in_flight = 0;
        self.next_round = self.now;
        self.queue.retain(|_, event| {
            !matches!(
                event,
                Event::Round | Event::Ping(_) | Event::RoundEnd(_) | Event::Pd | Event::PdEnd(_) | Event::Detail(_)
            )
        });
        self.advance();
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
