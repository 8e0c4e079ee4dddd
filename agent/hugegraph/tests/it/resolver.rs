//! Look-ups against a small name server on loopback.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};
use storewatch_core::ping::NameFailure;
use storewatch_hugegraph::resolve::Resolver;

const BUDGET: Duration = Duration::from_secs(1);

fn files(resolv_conf: &str, hosts: &str) -> (tempfile::TempDir, Resolver) {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path
    };
    let resolver = Resolver::with_files(write("resolv.conf", resolv_conf), write("hosts", hosts));
    (directory, resolver)
}

#[tokio::test]
async fn literals_need_no_name_server() {
    let (_files, resolver) = files("", "");
    let lookup = resolver.look_up("10.0.0.7", BUDGET).await;
    assert_eq!((lookup.v4.unwrap().len(), lookup.v6.unwrap().len()), (1, 0));
    let lookup = resolver.look_up("fd00::7", BUDGET).await;
    assert_eq!((lookup.v4.unwrap().len(), lookup.v6.unwrap().len()), (0, 1));
}

#[tokio::test]
async fn hosts_come_first_and_are_read_again_when_they_change() {
    let (directory, resolver) =
        files("nameserver 127.0.0.1\n", "10.1.2.3 store-0 Store-0.x _store_1\nfd00::3 store-0\n");
    let lookup = resolver.look_up("STORE-0", BUDGET).await;
    assert_eq!(lookup.v4, Ok(vec![IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3))]));
    assert_eq!(lookup.v6.map(|v6| v6.len()), Ok(1));
    let lookup = resolver.look_up("store-0.x", BUDGET).await;
    assert_eq!(lookup.v6, Ok(vec![]), "the name exists, without this family");
    assert!(resolver.look_up("_store_1", BUDGET).await.v4.is_ok());
    std::fs::write(directory.path().join("hosts"), "10.1.2.4  store-0\n").unwrap();
    let lookup = resolver.look_up("store-0", BUDGET).await;
    assert_eq!(lookup.v4, Ok(vec![IpAddr::V4(Ipv4Addr::new(10, 1, 2, 4))]));
}

#[tokio::test]
async fn without_name_servers_there_is_no_answer_and_it_says_why() {
    let (_files, resolver) = files("search x\n", "");
    let lookup = resolver.look_up("store-0", BUDGET).await;
    assert_eq!(lookup.v4, Err(NameFailure::NoAnswer));
    assert!(lookup.detail.unwrap().contains("resolv.conf"));
}
