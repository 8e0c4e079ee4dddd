//! A large node.

use crate::any::{START, judge, record};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use storewatch_core::{
    connection::{
        AttemptCount, Counted, InventorySample, KernelEvidence, SocketId, SocketOwner, SocketSample, TcpState,
    },
    id::{CgroupId, ClusterId, HostPort, NetnsId},
    observation::Observation,
    ping::PdReport,
    pod::PodRecord,
    time::MonoTime,
    topology::{ListedStore, ReportedState},
};

/// Time that this thread has spent on a processor, which other load on the machine does not change.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// 100 pods, 20 Stores, 10 000 sockets are judged, and what that costs is printed:
/// `cargo test --release -p storewatch-core --test it large_node -- --nocapture`.
#[test]
fn a_large_node_is_judged() {
    let mut now = START;
    let mut judge = judge(now);
    let stores = (1..=20).map(|id| ListedStore {
        id,
        address: HostPort { host: format!("10.0.1.{id}").into(), port: 8500 },
        state: ReportedState::Up,
    });
    let list = Some(stores.collect());
    judge.observe(Observation::Pd(PdReport {
        cluster: ClusterId(0),
        started: now,
        ended: now,
        peers: Vec::new(),
        list,
    }));
    let pods: Vec<_> = (0..100u64)
        .map(|n| {
            let mut pod = PodRecord::clone(&record(n));
            (pod.cluster, pod.host_network, pod.netns) =
                (ClusterId(0), false, Some(NetnsId(u32::try_from(n).unwrap())));
            Arc::new(pod)
        })
        .collect();
    judge.observe(Observation::Pods { at: now, pods });
    let remote = |n: u64| SocketAddr::from(([10, 0, 1, u8::try_from(n % 20 + 1).unwrap()], 8500));
    let owner = |n: u64| SocketOwner { cgroup: Some(CgroupId(n % 100)), netns: None, pid: None };
    let sample = |now: MonoTime, bytes: u64| {
        let sockets = (0..10_000u64).map(|n| SocketSample {
            socket: SocketId(n + 1),
            owner: owner(n),
            local: SocketAddr::from(([10, 1, 0, 1], 4000)),
            remote: remote(n / 100),
            state: TcpState::Established,
            bytes_received: Some(bytes),
            bytes_acked: None,
            unanswered: 0,
            retransmits: 0,
            retransmits_total: None,
            retransmitting: false,
            rtt: None,
            last_received: Some(now),
            last_sent: Some(now),
        });
        Observation::Inventory(InventorySample { at: now, ended: now, complete: true, sockets: sockets.collect() })
    };
    judge.observe(sample(now, 1));
    judge.advance(now);
    let (mut ticks, mut samples, mut storms) = (Vec::new(), Vec::new(), Vec::new());
    for second in 0..30u64 {
        now = now + Duration::from_secs(1);
        let observation = sample(now, second + 2);
        let begin = on_cpu();
        judge.observe(observation);
        samples.push(on_cpu() - begin);
        let begin = on_cpu();
        judge.advance(now);
        ticks.push(on_cpu() - begin);
        let counts = (0..2_000)
            .map(|n| AttemptCount {
                owner: Some(owner(n)),
                remote: remote(n / 100),
                what: Counted::Failed(KernelEvidence {
                    from: Some(TcpState::SynSent),
                    error: 111,
                    ..KernelEvidence::default()
                }),
                added: 1,
                last_begun: Some(now),
                last_ended: now,
            })
            .collect();
        let begin = on_cpu();
        judge.observe(Observation::Attempts { at: now, counts });
        storms.push(on_cpu() - begin);
    }
    // The kernel's clock is coarser than one tick: only the sum tells.
    let mean = |times: &[Duration]| times.iter().sum::<Duration>() / 30;
    let (tick, sample, storm) = (mean(&ticks), mean(&samples), mean(&storms));
    eprintln!("tick {tick:?}, sample of 10 000 sockets {sample:?}, 2 000 counters {storm:?} (means of 30)");
    assert_eq!(judge.snapshot(now).pods.len(), 100);
}
