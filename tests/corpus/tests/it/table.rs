//! The connection table: who talks to whom, and what became of it.

use std::{net::SocketAddr, time::Duration};
use storewatch_core::{
    attribution::Unattributed,
    connection::{
        ConnectionChange, ConnectionEvent, ConnectionOutcome, InventorySample, KernelEvidence, SocketId, SocketOwner,
        SocketSample, TcpState,
    },
    id::{CgroupId, ContainerKey, NetnsId, TargetKey},
    observation::Observation,
    table::{ConnectionFilter, ConnectionView, OwnerView, TableQuery, TargetFilter},
    time::MonoTime,
};
use storewatch_tests_corpus::{node::Node, script::Script};

const WORLD: &str = "
0 pd up 1=store-1 2=store-2
0 dns store-1 10.0.0.1
0 dns store-2 10.0.0.2
0 host 10.0.0.1 serves store-1
0 host 10.0.0.2 serves store-2
0 pods server-0@100 server-1@101
";

const CLIENT: &str = "10.1.0.100:40000";

fn world(more: &str) -> Node {
    Node::run(Script::parse("test", &format!("{WORLD}{more}")))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn owner(cgroup: u64) -> SocketOwner {
    SocketOwner { cgroup: Some(CgroupId(cgroup)), netns: Some(NetnsId(1100)), pid: Some(4711) }
}

fn detail(node: &mut Node, socket: u64, what: ConnectionChange, at: MonoTime) {
    let (rtt, retransmits_total) = (Some(Duration::from_micros(250)), Some(3));
    node.judge.observe(Observation::Connection(ConnectionEvent {
        at,
        socket: SocketId(socket),
        owner: owner(100),
        local: address(CLIENT),
        remote: address("10.0.0.1:8500"),
        rtt,
        retransmits_total,
        what,
    }));
}

fn sample(socket: u64, owner: SocketOwner, state: TcpState, used: MonoTime) -> SocketSample {
    SocketSample {
        socket: SocketId(socket),
        owner,
        local: address(CLIENT),
        remote: address("10.0.0.1:8500"),
        state,
        bytes_received: Some(10),
        bytes_acked: Some(10),
        unanswered: 0,
        retransmits: 0,
        retransmits_total: Some(5),
        retransmitting: false,
        rtt: Some(Duration::from_micros(300)),
        last_received: Some(used),
        last_sent: None,
    }
}

fn inventory(node: &mut Node, at: MonoTime, sockets: Vec<SocketSample>) {
    node.judge.observe(Observation::Inventory(InventorySample { at, ended: at, complete: true, sockets }));
}

fn all(node: &Node) -> Vec<ConnectionView> {
    node.judge.table(&TableQuery::default()).connections
}

fn only(node: &Node) -> ConnectionView {
    let mut all = all(node);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

#[test]
fn a_connection_from_its_dial_to_its_end() {
    let mut node = world("20 end");
    let at = |millis: u64| node.now + Duration::from_millis(millis);
    let (begun, up, read, end) = (at(0), at(10), at(5_000), at(9_000));
    detail(&mut node, 7, ConnectionChange::Begun, begun);
    let view = only(&node);
    assert_eq!((view.state, view.outcome, view.opened_at), (TcpState::SynSent, None, Some(begun)));
    assert_eq!((view.pid, view.container), (Some(4711), ContainerKey::Cgroup(CgroupId(100))));
    assert_eq!((view.last_used, view.established_at), (None, None));

    detail(&mut node, 7, ConnectionChange::Established { begun: Some(begun) }, up);
    let view = only(&node);
    assert_eq!((view.state, view.outcome), (TcpState::Established, Some(ConnectionOutcome::Established)));
    assert_eq!((view.last_used, view.established_at), (Some(up), Some(up)), "the handshake is a use");
    assert_eq!((view.rtt, view.retransmits), (Some(Duration::from_micros(250)), 3));
    assert_eq!((view.target, view.owner), (Some(TargetKey::Store(1)), OwnerView::Current));

    inventory(&mut node, read, vec![sample(7, owner(100), TcpState::Established, at_of(read, 1_000))]);
    let view = only(&node);
    assert_eq!((view.last_used, view.rtt), (Some(at_of(read, 1_000)), Some(Duration::from_micros(300))));
    assert_eq!((view.retransmits, view.bytes_received), (5, Some(10)), "the kernel's own count");

    let evidence = KernelEvidence {
        from: Some(TcpState::Established),
        error: 104,
        reset_received: true,
        ..KernelEvidence::default()
    };
    detail(&mut node, 7, ConnectionChange::Ended { begun: Some(begun), evidence, bytes_received: Some(10) }, end);
    let view = only(&node);
    assert_eq!((view.state, view.outcome, view.ended), (TcpState::Close, Some(ConnectionOutcome::Reset), Some(end)));
    assert_eq!((view.opened_at, view.retransmits), (Some(begun), 5), "never less than was known");
}

fn at_of(at: MonoTime, millis_before: u64) -> MonoTime {
    at - Duration::from_millis(millis_before)
}

#[test]
fn one_that_is_older_than_the_agent_is_established_and_without_a_begin() {
    let mut node = world("20 end");
    let at = node.now;
    inventory(&mut node, at, vec![sample(7, owner(100), TcpState::Established, at)]);
    let view = only(&node);
    assert_eq!((view.outcome, view.opened_at), (Some(ConnectionOutcome::Established), None));
    assert_eq!((view.first_seen, view.pid), (at, Some(4711)));
}

#[test]
fn what_a_sample_no_longer_lists_has_ended_until_the_kernel_says_how() {
    let mut node = world("20 end");
    let at = |millis: u64| node.now + Duration::from_millis(millis);
    let (begun, gone, late) = (at(0), at(2_000), at(60_000));
    detail(&mut node, 7, ConnectionChange::Begun, begun);
    detail(&mut node, 7, ConnectionChange::Established { begun: Some(begun) }, begun);
    inventory(&mut node, gone, Vec::new());
    let view = only(&node);
    assert_eq!(
        (view.outcome, view.ended),
        (Some(ConnectionOutcome::Unknown), Some(gone)),
        "how is not known, and said"
    );
    // Its process had closed it; the kernel went on for a minute.
    let evidence = KernelEvidence {
        from: Some(TcpState::FinWait1),
        retransmits: 9,
        unanswered: true,
        ..KernelEvidence::default()
    };
    detail(&mut node, 7, ConnectionChange::Ended { begun: Some(begun), evidence, bytes_received: Some(0) }, late);
    let view = only(&node);
    assert_eq!((view.outcome, view.ended), (Some(ConnectionOutcome::Stalled), Some(late)));
    // The kernel gives the address to the next socket.
    let next = late + Duration::from_secs(1);
    detail(&mut node, 7, ConnectionChange::Begun, next);
    assert_eq!(all(&node).len(), 2);
    detail(&mut node, 7, ConnectionChange::Failed { begun: Some(next), evidence: KernelEvidence::default() }, next);
    assert_eq!(all(&node).len(), 2, "the second one ended, the first one stays as it was");
}

#[test]
fn the_fallback_and_details_mean_the_same_socket() {
    let mut node = world("20 end");
    let at = node.now;
    let nameless = SocketSample {
        retransmits_total: None,
        rtt: None,
        last_received: None,
        ..sample(0, owner(100), TcpState::Established, at)
    };
    inventory(&mut node, at, vec![nameless]);
    assert_eq!(only(&node).last_used, None, "the fallback does not know");
    let evidence = KernelEvidence { from: Some(TcpState::LastAck), ..KernelEvidence::default() };
    detail(&mut node, 7, ConnectionChange::Ended { begun: None, evidence, bytes_received: None }, at);
    assert_eq!(only(&node).outcome, Some(ConnectionOutcome::PeerClosed));
}

#[test]
fn a_former_address_is_previous_and_a_strange_one_unknown() {
    let node = world(
        "10 dial 100 10.0.0.1 ok old
10 dial 100 10.0.0.7 ok strange
20 host 10.0.0.9 serves store-1
20 dns store-1 10.0.0.9
100 dial 101 10.0.0.9 ok new
110 end",
    );
    let rows: Vec<_> = all(&node)
        .iter()
        .map(|view| (view.pod.name.to_string(), view.remote.ip().to_string(), view.target, view.owner))
        .collect();
    let row = |pod: &str, ip: &str, target, owner| (pod.to_owned(), ip.to_owned(), target, owner);
    let first = Some(TargetKey::Store(1));
    assert_eq!(
        rows,
        [
            row("server-0", "10.0.0.1", first, OwnerView::Previous),
            row("server-0", "10.0.0.7", None, OwnerView::Unknown),
            row("server-1", "10.0.0.9", first, OwnerView::Current),
        ]
    );
}

#[test]
fn filters_and_pages() {
    let node = world(
        "10 dial 100 10.0.0.1 ok a
10 dial 100 10.0.0.2 ok b
10 dial 101 10.0.0.2 ok c
11 dial 101 10.0.0.1 refused
12 dial 101 10.0.0.7 refused
13 close b reset
20 end",
    );
    let found = |filter: ConnectionFilter| {
        let table = node.judge.table(&TableQuery { filter, ..TableQuery::default() });
        assert_eq!(table.total, table.connections.len());
        let row = |view: &ConnectionView| {
            let outcome = view.outcome.map_or("-", ConnectionOutcome::as_str);
            format!("{} {} {outcome}", view.pod.name, view.remote.ip())
        };
        table.connections.iter().map(row).collect::<Vec<_>>()
    };
    let none = ConnectionFilter::default;
    assert_eq!(
        found(none()),
        [
            "server-0 10.0.0.1 established",
            "server-0 10.0.0.2 reset",
            "server-1 10.0.0.2 established",
            "server-1 10.0.0.7 refused",
            "server-1 10.0.0.1 refused"
        ]
    );
    let rows: [(ConnectionFilter, usize); 9] = [
        (ConnectionFilter { pod: Some("server-0".into()), ..none() }, 2),
        (ConnectionFilter { pod: Some("server".into()), ..none() }, 0),
        (ConnectionFilter { namespace: Some("graph".into()), ..none() }, 5),
        (ConnectionFilter { namespace: Some("other".into()), ..none() }, 0),
        (ConnectionFilter { target: Some(TargetFilter::Labelled(TargetKey::Store(2))), ..none() }, 2),
        (ConnectionFilter { target: Some(TargetFilter::Other), ..none() }, 1),
        (ConnectionFilter { owner: Some(OwnerView::Unknown), ..none() }, 1),
        (ConnectionFilter { outcome: Some(ConnectionOutcome::Refused), ..none() }, 2),
        (ConnectionFilter { state: Some(TcpState::Close), pod: Some("server-1".into()), ..none() }, 2),
    ];
    for (filter, count) in rows {
        assert_eq!(found(filter.clone()).len(), count, "{filter:?}");
    }
    let page = |offset, limit| {
        let table = node.judge.table(&TableQuery { offset, limit, ..TableQuery::default() });
        (table.total, table.connections.len(), table.connections.first().map(|view| view.remote.ip().to_string()))
    };
    assert_eq!(page(1, 2), (5, 2, Some("10.0.0.2".into())));
    assert_eq!(page(4, 100), (5, 1, Some("10.0.0.1".into())));
    assert_eq!((page(5, 100), page(0, 0)), ((5, 0, None), (5, 0, None)));
    assert_eq!(page(usize::MAX, usize::MAX), (5, 0, None));
}

#[test]
fn what_belongs_to_no_pod_has_a_bucket_with_its_reason() {
    let mut node = world("20 end");
    let at = node.now;
    let stranger = SocketOwner { cgroup: Some(CgroupId(9_999)), netns: Some(NetnsId(9)), pid: Some(1) };
    let nobody = SocketOwner { cgroup: None, netns: None, pid: None };
    let mut sockets: Vec<_> = (1..=2_000).map(|n| sample(n, stranger, TcpState::Established, at)).collect();
    sockets.push(sample(5_000, nobody, TcpState::SynSent, at));
    inventory(&mut node, at, sockets);
    let table = node.judge.table(&TableQuery::default());
    assert_eq!(table.total, 0);
    assert_eq!(table.unattributed, [(Unattributed::NoOwner, 1), (Unattributed::Stranger, 2_000)]);
    assert_eq!((table.strays.len(), table.strays[0].reason), (1024, Unattributed::Stranger));
    let stray = &table.strays[0];
    assert_eq!(
        (stray.socket.owner.pid, stray.target, stray.owner),
        (Some(1), Some(TargetKey::Store(1)), OwnerView::Current)
    );
    let of = |filter| node.judge.table(&TableQuery { filter, ..TableQuery::default() }).strays.len();
    assert_eq!(of(ConnectionFilter { owner: Some(OwnerView::Unknown), ..ConnectionFilter::default() }), 0);
    assert_eq!(of(ConnectionFilter { namespace: Some("graph".into()), ..ConnectionFilter::default() }), 0);
    inventory(&mut node, at + Duration::from_secs(1), Vec::new());
    assert!(node.judge.table(&TableQuery::default()).unattributed.is_empty());
}

#[test]
fn a_question_wants_a_fresh_sample() {
    let mut node = world("20 end");
    let asked = node.now + Duration::from_secs(10);
    inventory(&mut node, asked - Duration::from_millis(900), Vec::new());
    assert!(node.judge.freshen(asked));
    let later = asked + Duration::from_secs(1);
    assert!(!node.judge.freshen(later));
    let wished = |node: &mut Node, at| {
        let requests = node.judge.advance(at).requests;
        requests.contains(&storewatch_core::request::Request::Inventory)
    };
    assert!(wished(&mut node, later), "it is asked for");
    assert!(!node.judge.freshen(later + Duration::from_millis(100)));
    assert!(!wished(&mut node, later + Duration::from_millis(100)), "not more than once a second");
    inventory(&mut node, later + Duration::from_millis(200), Vec::new());
    assert!(node.judge.freshen(later + Duration::from_millis(300)));
}
