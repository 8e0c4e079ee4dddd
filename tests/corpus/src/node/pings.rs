//! What the node's own calls find.

use super::*;
use std::{net::SocketAddr, time::Duration};
use storewatch_core::{
    id::{ClusterId, HostPort, TargetId, TargetKey},
    observation::Observation,
    ping::{NameFailure, NameReport, PdReport, PeerReport, Phases, Ping, PingOutcome, Purpose},
    time::MonoTime,
};

impl Node {
    pub(super) fn start_round(&mut self) {
        if self.in_flight > 0 || self.targets.is_empty() || self.now < self.next_round || self.paused {
            return;
        }
        self.round += 1;
        self.round_started = self.now;
        self.next_round = self.now + self.script.setting("ping_interval", 2.0);
        self.schedule(self.next_round, Event::Round);
        self.round_asked = self.targets.iter().map(|target| target.id).collect();
        self.in_flight = self.targets.len();
        for target in self.targets.clone() {
            let remote = self.resolved.get(&target.id.key).copied();
            let fresh = self.round.is_multiple_of(10) || self.kept.get(&target.id.key).copied() != remote;
            let ping = self.ping(target.id, remote, Purpose::Round(self.round), fresh);
            self.schedule(ping.ended, Event::Ping(ping));
        }
    }

    pub(super) fn ping(&self, target: TargetId, remote: Option<SocketAddr>, purpose: Purpose, fresh: bool) -> Ping {
        let millis = Duration::from_millis;
        let expected = self.targets.iter().find(|known| known.id == target).and_then(|target| target.identity.clone());
        let (outcome, took, identity) =
            match remote.map(|remote| if self.blind { Host::Silent } else { self.host(remote) }) {
                None => (PingOutcome::Unreachable, millis(1), None),
                Some(Host::Serves(identity)) => {
                    let wrong = expected.is_some() && identity.is_some() && expected != identity;
                    (if wrong { PingOutcome::Identity } else { PingOutcome::Serving }, millis(3), identity)
                }
                Some(Host::Refused) => (PingOutcome::Refused, millis(1), None),
                Some(Host::Silent | Host::Hung | Host::Gone) => (PingOutcome::Deadline, TIMEOUT, None),
            };
        let hung = remote.is_some_and(|remote| self.host(remote) == Host::Hung);
        let connect = (hung || took < millis(4)).then(|| millis(1));
        Ping {
            target,
            remote,
            purpose,
            fresh,
            started: self.now,
            ended: self.now + took,
            outcome,
            phases: Phases { connect, ..Phases::default() },
            identity,
            detail: None,
        }
    }

    pub(super) fn pd_report(&self, started: MonoTime, ended: MonoTime) -> PdReport {
        let peer = |alive, serving, auth_refused| PeerReport {
            peer: 0,
            alive,
            health_serving: serving,
            auth_refused,
            error: None,
        };
        let (peer, list) = match &self.pd {
            Pd::Up(list) => (peer(true, None, false), Some(list.clone())),
            Pd::Down => (peer(false, None, false), None),
            Pd::NoLeader => (peer(true, Some(true), false), None),
            Pd::Refused => (peer(true, Some(true), true), None),
        };
        PdReport { cluster: ClusterId(0), started, ended, peers: vec![peer], list }
    }

    pub(super) fn dns(&mut self) {
        let mut asked: Vec<(TargetId, HostPort)> =
            self.targets.iter().map(|target| (target.id, target.address.clone())).collect();
        let pd = TargetId { cluster: ClusterId(0), key: TargetKey::Pd(0) };
        asked.push((pd, HostPort { host: "pd-0".into(), port: 8686 }));
        for (target, address) in asked {
            let Some(answer) = self.names.get(&*address.host).cloned() else { continue };
            for v6 in [false, true] {
                let answer = match &answer {
                    Name::Addresses(all) => {
                        let all: Vec<_> = all.iter().filter(|ip| ip.is_ipv6() == v6).copied().collect();
                        if let Some(first) = all.first() {
                            let known = self.resolved.get(&target.key);
                            if known.is_none_or(|known| !all.contains(&known.ip())) {
                                self.resolved.insert(target.key, SocketAddr::new(*first, address.port));
                            }
                        }
                        Ok(all)
                    }
                    Name::Nx => Err(NameFailure::NoSuchName),
                    Name::Silent => Err(NameFailure::NoAnswer),
                };
                self.observe(Observation::Name(NameReport { target, at: self.now, v6, answer }));
            }
        }
    }
}
