//! What the node's own calls find.

use super::*;
use storewatch_core::{
    id::HostPort,
    ping::{NameFailure, NameReport, PeerReport, Phases, PingOutcome},
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
        let most = usize::try_from(self.script.count("max_stores_per_round", 16)).unwrap();
        let from = if self.next_target < self.targets.len() { self.next_target } else { 0 };
        let targets: Vec<_> = self.targets.iter().skip(from).take(most).cloned().collect();
        self.next_target = from + targets.len();
        self.round_completes = self.next_target >= self.targets.len();
        self.round_asked = targets.iter().map(|target| target.id).collect();
        self.in_flight = targets.len();
        for target in targets {
            let remote = self.resolved.get(&target.id.key).copied();
            let fresh = self.round.is_multiple_of(10) || self.kept.get(&target.id.key).copied() != remote;
            let ping = self.ping(target.id, remote, Purpose::Round(self.round), fresh);
            self.schedule(ping.ended, Event::Ping(ping));
        }
    }

    pub(super) fn ping_ended(&mut self, mut ping: Ping) {
        ping.ended = self.now;
        if ping.outcome.answers() {
            self.kept.insert(ping.target.key, ping.remote.unwrap());
        } else {
            self.kept.remove(&ping.target.key);
        }
        let of_round = matches!(ping.purpose, Purpose::Round(_));
        self.in_flight -= usize::from(of_round);
        self.observe(Observation::Ping(ping));
        if of_round && self.in_flight == 0 {
            let ended = RoundEnded {
                cluster: ClusterId(0),
                round: self.round,
                started: self.round_started,
                ended: self.now,
                asked: self.round_asked.clone(),
                sweep_complete: self.round_completes,
                late: std::mem::take(&mut self.late),
            };
            self.schedule(self.now, Event::RoundEnd(ended));
        }
    }

    pub(super) fn ping(&self, target: TargetId, remote: Option<SocketAddr>, purpose: Purpose, fresh: bool) -> Ping {
        let millis = Duration::from_millis;
        let known = self.targets.iter().find(|known| known.id == target);
        let expected = known.and_then(|target| target.identity.clone());
        let unresolved = known.and_then(|target| self.names.get(&*target.address.host));
        let (outcome, took, identity) =
            match remote.map(|remote| if self.blind { Host::Silent } else { self.host(remote) }) {
                None if matches!(unresolved, Some(Name::Silent)) => (PingOutcome::Deadline, millis(1), None),
                None => (PingOutcome::Unreachable, millis(1), None),
                Some(Host::Serves(identity)) => {
                    let wrong = expected.is_some() && identity.is_some() && expected != identity;
                    (if wrong { PingOutcome::Identity } else { PingOutcome::Serving }, millis(3), identity)
                }
                Some(Host::Denied) => (PingOutcome::NotAllowed, millis(3), None),
                Some(Host::Proxy) => (PingOutcome::Protocol, millis(3), None),
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
            unresolved: false,
            error: None,
        };
        let (peer, list) = match &self.pd {
            Pd::Up(list) => (peer(true, None, false), Some(list.clone())),
            Pd::Down => (peer(false, None, false), None),
            Pd::Nameless => {
                let error = Some("no answer within the budget (dns)".into());
                (PeerReport { unresolved: true, error, ..peer(false, None, false) }, None)
            }
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
            if let Name::Addresses(all) = &answer {
                // Dialled is the first that the answer names, the last one while it is among them.
                let known = self.resolved.get(&target.key).is_some_and(|known| all.contains(&known.ip()));
                if let Some(first) = all.first().filter(|_| !known) {
                    self.resolved.insert(target.key, SocketAddr::new(*first, address.port));
                }
            }
            for v6 in [false, true] {
                let answer = match &answer {
                    Name::Addresses(all) => Ok(all.iter().filter(|ip| ip.is_ipv6() == v6).copied().collect()),
                    Name::Nx => Err(NameFailure::NoSuchName),
                    Name::Silent => Err(NameFailure::NoAnswer),
                };
                self.observe(Observation::Name(NameReport { target, at: self.now, v6, answer }));
            }
        }
    }
}
