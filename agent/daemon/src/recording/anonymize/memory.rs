//! What the agent knew at the begin of a recording.

use super::Anonymizer;
use std::net::SocketAddr;
use storewatch_core::{
    memory::{
        Answered, ClusterMemory, ContainerMemory, Dialer, Early, EarlyEvidence, Evidence, Memory, NodeMemory, PdMemory,
        PeerMemory, PodMemory, Remote, SocketMemory, SourceMemory, StoreMemory, TenureMemory, VerdictMemory,
    },
    ownership::Tenure,
    snapshot::LastPing,
    verdict::{Facts, Finding, Remedy},
};

impl Anonymizer {
    pub(super) fn memory(&mut self, memory: Memory) -> Memory {
        let Memory { taken_at, watched_since, clusters, pods, node } = memory;
        Memory {
            taken_at,
            watched_since,
            clusters: clusters.into_iter().map(|cluster| self.cluster_memory(cluster)).collect(),
            pods: pods.into_iter().map(|pod| self.pod_memory(pod)).collect(),
            node: self.node_memory(node),
        }
    }

    fn node_memory(&mut self, memory: NodeMemory) -> NodeMemory {
        let NodeMemory { pods_at, sampled, exits, early, sources, kernel_loss, publication } = memory;
        let early = early.into_iter().map(|Early { at, what }| Early {
            at,
            what: match what {
                EarlyEvidence::Count(count) => EarlyEvidence::Count(self.count(count)),
                EarlyEvidence::Event(event) => EarlyEvidence::Event(self.event(event)),
            },
        });
        let early = early.collect();
        let sources = sources.into_iter().map(|source| {
            let SourceMemory { name, state, detail: _, last, told, told_detail: _, told_at } = source;
            SourceMemory { name, state, detail: "".into(), last, told, told_detail: "".into(), told_at }
        });
        NodeMemory {
            pods_at,
            sampled,
            exits: exits.map(|(at, pods)| (at, pods.iter().map(|uid| self.uid(uid)).collect())),
            early,
            sources: sources.collect(),
            kernel_loss,
            publication,
        }
    }

    fn cluster_memory(&mut self, memory: ClusterMemory) -> ClusterMemory {
        let ClusterMemory {
            name,
            pd_peers,
            stores,
            list,
            list_at,
            ever_answered,
            only_deadlines,
            verdict,
            live,
            rounds,
            last_round,
            answered_round,
            evidence_at,
            pinged,
            addresses,
            pd,
            tenures,
            gone,
            services,
            occupants,
            findings,
        } = memory;
        ClusterMemory {
            name: self.cluster(&name),
            pd_peers: self.host_ports(pd_peers),
            stores: self.host_ports(stores),
            list: self.list(list),
            list_at,
            ever_answered,
            only_deadlines,
            verdict: unsaid(verdict),
            live,
            rounds,
            last_round,
            answered_round,
            evidence_at,
            pinged: pinged.into_iter().map(|(key, store)| (key, self.store_memory(store))).collect(),
            addresses: addresses.into_iter().map(|(address, pings)| (self.address(address), pings)).collect(),
            pd: pd_memory(pd),
            tenures: tenures
                .into_iter()
                .map(|TenureMemory { target, address, tenure }| TenureMemory {
                    target,
                    address: self.address(address),
                    tenure: self.tenure(tenure),
                })
                .collect(),
            gone,
            services: services.into_iter().map(|ip| self.ip(ip)).collect(),
            occupants: occupants
                .into_iter()
                .map(|(target, address, occupant)| (target, self.address(address), self.occupant(occupant)))
                .collect(),
            findings: findings.into_iter().map(|finding| self.finding(finding)).collect(),
        }
    }

    fn store_memory(&mut self, memory: StoreMemory) -> StoreMemory {
        let StoreMemory { answering, last_ping, answer, silent, silent_since } = memory;
        StoreMemory {
            answering,
            last_ping: last_ping.map(|LastPing { outcome, at, phases, detail }| LastPing {
                outcome,
                at,
                phases,
                detail: detail.map(|_| "".into()),
            }),
            answer: answer.map(|Answered { remote, at, took }| Answered { remote: self.address(remote), at, took }),
            silent,
            silent_since,
        }
    }

    fn tenure(&mut self, tenure: Tenure) -> Tenure {
        let Tenure { from, ended, claims, identity, successor } = tenure;
        let identity = identity.map(|(name, at)| (self.identity(&name), at));
        Tenure { from, ended, claims, identity, successor }
    }

    fn pod_memory(&mut self, memory: PodMemory) -> PodMemory {
        let PodMemory { cluster, record, listed, verdict, restored, reach, containers, findings, carried } = memory;
        PodMemory {
            cluster: self.cluster(&cluster),
            record: self.record(record),
            listed,
            verdict: unsaid(verdict),
            restored,
            reach,
            containers: containers.into_iter().map(|container| self.container(container)).collect(),
            findings: findings.into_iter().map(|finding| self.finding(finding)).collect(),
            carried: carried.into_iter().map(|finding| self.finding(finding)).collect(),
        }
    }

    fn container(&mut self, memory: ContainerMemory) -> ContainerMemory {
        let ContainerMemory { key, first_seen, foreign, last_evidence, stale, baselines, dialers, evidence, gap } =
            memory;
        ContainerMemory {
            key,
            first_seen,
            foreign,
            last_evidence,
            stale: stale.into_iter().map(|(target, at, entry)| (target, self.address(at), entry)).collect(),
            baselines: baselines.into_iter().map(|(target, at, reading)| (target, self.address(at), reading)).collect(),
            dialers: dialers
                .into_iter()
                .map(|(pid, Dialer { last, addresses, started, command })| {
                    let addresses = addresses.into_iter().map(|to| self.address(to)).collect();
                    // Numbers and flags, nothing that names anybody.
                    (pid, Dialer { last, addresses, started, command })
                })
                .collect(),
            evidence: evidence.map(|Evidence { remotes, sockets }| Evidence {
                remotes: remotes
                    .into_iter()
                    // Instants, numbers and kinds.
                    .map(|(address, remote): (SocketAddr, Remote)| (self.address(address), remote))
                    .collect(),
                sockets: sockets.into_iter().map(|socket| self.socket_memory(socket)).collect(),
            }),
            gap,
        }
    }

    fn socket_memory(&mut self, memory: SocketMemory) -> SocketMemory {
        let (id, local, remote) = (self.socket(memory.id), self.address(memory.local), self.address(memory.remote));
        // The rest are numbers and instants.
        SocketMemory { id, local, remote, ..memory }
    }

    fn finding(&mut self, finding: Finding) -> Finding {
        let Finding {
            code,
            mode,
            target,
            since,
            confirms_at,
            message: _,
            evidence: _,
            facts,
            remedy: Remedy { now: _, prevent: _ },
            severity,
            carried,
        } = finding;
        let address = facts.address.map(|address| self.address(address));
        let present = facts.present.map(|address| self.address(address));
        Finding {
            code,
            mode,
            target,
            since,
            confirms_at,
            message: String::new(),
            evidence: String::new(),
            facts: Facts { address, present, ..facts },
            remedy: Remedy { now: String::new(), prevent: String::new() },
            severity,
            carried,
        }
    }
}

fn unsaid(verdict: VerdictMemory) -> VerdictMemory {
    VerdictMemory { message: String::new(), ..verdict }
}

fn pd_memory(memory: PdMemory) -> PdMemory {
    let unsaid = |peer: PeerMemory| PeerMemory { last_error: peer.last_error.map(|_| "".into()), ..peer };
    PdMemory { peers: memory.peers.into_iter().map(unsaid).collect(), ..memory }
}
