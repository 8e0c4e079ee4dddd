//! The client pod, whose connections must look like grpc-java's.

use crate::host_port;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use storewatch_hugegraph::{
    resolve::Resolver,
    testkit::{
        LocalStore,
        client::{ClientPod, ClientStats},
        store::StoreFault,
    },
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(10), "never: {what}");
        sleep(Duration::from_millis(5)).await;
    }
    begin.elapsed()
}

#[tokio::test]
async fn it_keeps_its_channels_backs_off_and_comes_back() {
    let store = LocalStore::start(None).unwrap();
    let pod = ClientPod {
        every: Duration::from_millis(10),
        call_timeout: Duration::from_millis(300),
        ..ClientPod::new(vec![host_port(store.address)])
    };
    let stats = Arc::new(ClientStats::default());
    let read = |counter: fn(&ClientStats) -> &std::sync::atomic::AtomicU64| counter(&stats).load(Ordering::Relaxed);
    let mut task = JoinSet::new();
    let (resolver, shared) = (Arc::new(Resolver::default()), Arc::clone(&stats));
    task.spawn(async move { pod.run(resolver, shared).await });

    until("calls on two channels", || read(|stats| &stats.answered) > 20).await;
    assert_eq!(read(|stats| &stats.connected), 2);
    assert_eq!(read(|stats| &stats.connect_failed), 0);

    // A frozen Store: calls run out of time, and the connections stay.
    store.fault.send_replace(StoreFault::Frozen);
    until("calls that run out of time", || read(|stats| &stats.failed) >= 2).await;
    store.fault.send_replace(StoreFault::None);
    let answered = read(|stats| &stats.answered);
    until("calls again", || read(|stats| &stats.answered) > answered + 20).await;
    assert_eq!(read(|stats| &stats.connected), 2, "no new connection was needed");

    // A killed one: an attempt each, then silence for about a second in which calls fail.
    store.fault.send_replace(StoreFault::Down);
    until("both attempts", || read(|stats| &stats.connect_failed) == 2).await;
    let failed = read(|stats| &stats.failed);
    store.fault.send_replace(StoreFault::None);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(read(|stats| &stats.connected), 2, "nothing is dialled during the pause");
    assert!(read(|stats| &stats.failed) > failed + 20, "calls fail at once meanwhile");
    let took = until("new channels", || read(|stats| &stats.connected) == 4).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}
