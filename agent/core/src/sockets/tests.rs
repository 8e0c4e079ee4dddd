use super::*;
use crate::connection::SocketOwner;

const REMOTE: &str = "10.42.1.17:8500";
const OWNER: SocketOwner = SocketOwner { cgroup: None, netns: None, pid: None };

fn at(seconds: i64) -> MonoTime {
    MonoTime::from_nanos(seconds * 1_000_000_000)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::new(address("10.42.0.7:1").ip(), port)
}

fn event(seconds: i64, port: u16, what: ConnectionChange) -> ConnectionEvent {
    let at = at(seconds);
    ConnectionEvent {
        at,
        socket: SocketId(7),
        owner: OWNER,
        local: local(port),
        remote: address(REMOTE),
        rtt: None,
        retransmits_total: None,
        what,
    }
}

fn sample(port: u16) -> SocketSample {
    SocketSample {
        socket: SocketId(7),
        owner: OWNER,
        local: local(port),
        remote: address(REMOTE),
        state: TcpState::Established,
        bytes_received: Some(0),
        bytes_acked: Some(0),
        unanswered: 0,
        retransmits: 0,
        retransmits_total: None,
        retransmitting: false,
        rtt: None,
        last_received: None,
        last_sent: None,
    }
}

/// A connection that was begun at 1 s from port 40001.
fn opened() -> Sockets {
    let mut sockets = Sockets::default();
    sockets.event(&event(1, 0, ConnectionChange::Begun));
    sockets.event(&event(2, 40_001, ConnectionChange::Established { begun: Some(at(1)) }));
    sockets
}

#[test]
fn an_address_of_the_kernels_that_is_used_again_is_another_connection() {
    let mut sockets = opened();
    // Its close and the next one's begin were missed.
    sockets.sample(&sample(40_002), at(9), at(9));
    let live: Vec<_> = sockets.live().map(|socket| (socket.local.port(), socket.begun)).collect();
    assert_eq!(live, [(40_002, None)]);
    let ended: Vec<_> = sockets.ended().map(|socket| (socket.local.port(), socket.begun, socket.ended)).collect();
    assert_eq!(ended, [(40_001, Some(at(1)), Some(at(9)))]);
}

#[test]
fn a_begin_without_a_port_is_not_taken_for_another_connection() {
    let mut sockets = Sockets::default();
    sockets.event(&event(1, 0, ConnectionChange::Begun));
    sockets.sample(&sample(40_001), at(2), at(2));
    sockets.event(&event(3, 40_001, ConnectionChange::Established { begun: Some(at(1)) }));
    assert_eq!(sockets.live().map(|socket| socket.begun).collect::<Vec<_>>(), [Some(at(1))]);
    assert_eq!(sockets.ended().count(), 0);
}

#[test]
fn a_complete_sample_ends_what_it_does_not_list_and_an_older_one_does_not() {
    let mut sockets = opened();
    sockets.reconcile(at(2));
    assert_eq!(sockets.live().count(), 1, "the sample was begun before its last event");
    sockets.reconcile(at(3));
    assert_eq!((sockets.live().count(), sockets.ended().count()), (0, 1));
}

#[test]
fn an_unknown_socket_of_a_sample_is_added_once() {
    let mut sockets = Sockets::default();
    for second in 1..4 {
        sockets.sample(&sample(40_001), at(second), at(second));
        sockets.reconcile(at(second));
    }
    assert_eq!((sockets.live().count(), sockets.ended().count()), (1, 0));
}
