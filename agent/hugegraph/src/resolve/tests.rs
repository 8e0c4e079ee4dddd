//! Look-ups against a small name server on loopback.

use super::*;
use hickory_resolver::{
    config::{ConnectionConfig, NameServerConfig},
    proto::{
        op::{Message, Metadata},
        rr::{
            RData, Record,
            rdata::{A, AAAA},
        },
    },
};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};
use tokio::{net::UdpSocket, task::JoinSet};

const BUDGET: Duration = Duration::from_secs(3);

/// What the name server says about a name and a record type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Address,
    NoData,
    NoName,
    ServFail,
    Nothing,
}

struct Server {
    system: System,
    queries: Arc<Mutex<Vec<(String, RecordType)>>>,
    _task: JoinSet<()>,
}

/// A name server that answers by `says`, the n-th query with the address 10.0.0.n or fd00::n.
async fn server(search: &[&str], ndots: usize, says: fn(&str, RecordType) -> Says) -> Server {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut connection = ConnectionConfig::udp();
    connection.port = socket.local_addr().unwrap().port();
    let queries = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&queries);
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut buffer = [0; 4096];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let question = Message::from_vec(&buffer[..length]).unwrap();
            let query = question.queries[0].clone();
            let (name, kind) = (query.name().to_string(), query.query_type());
            let number = {
                let mut seen = seen.lock().unwrap();
                seen.push((name.clone(), kind));
                u8::try_from(seen.len()).unwrap()
            };
            let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
            answer.metadata = Metadata::response_from_request(&question.metadata);
            answer.metadata.recursion_available = true;
            answer.add_query(query.clone());
            match says(&name, kind) {
                Says::Nothing => continue,
                Says::NoData => {}
                Says::NoName => answer.metadata.response_code = ResponseCode::NXDomain,
                Says::ServFail => answer.metadata.response_code = ResponseCode::ServFail,
                Says::Address => {
                    let data = if kind == RecordType::A {
                        RData::A(A(Ipv4Addr::new(10, 0, 0, number)))
                    } else {
                        RData::AAAA(AAAA(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number))))
                    };
                    answer.add_answer(Record::from_rdata(query.name().clone(), 300, data));
                }
            }
            socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    });
    let search = search.iter().map(|name| Name::from_str(name).unwrap()).collect();
    let server = NameServerConfig::new(Ipv4Addr::LOCALHOST.into(), true, vec![connection]);
    let mut options = ResolverOpts::default();
    options.ndots = ndots;
    let dns = build(ResolverConfig::from_parts(None, search, vec![server]), options);
    Server { system: System { hosts: Hosts::default(), dns }, queries, _task: task }
}

impl Server {
    async fn look_up(&self, host: &str) -> Lookup {
        self.system.look_up(Name::from_str(host).unwrap(), Instant::now() + BUDGET).await
    }

    fn asked(&self, name: &str) -> usize {
        self.queries.lock().unwrap().iter().filter(|(asked, _)| asked == name).count()
    }
}

#[tokio::test]
async fn each_answer_is_told_apart() {
    use NameFailure::{NoAnswer, NoSuchName};
    fn says(name: &str, kind: RecordType) -> Says {
        match (name, kind) {
            ("both.", _) | ("four.", RecordType::A) | ("half.", RecordType::A) => Says::Address,
            ("four.", _) | ("bare.", _) => Says::NoData,
            ("half.", _) | ("broken.", _) => Says::ServFail,
            _ => Says::NoName,
        }
    }
    let server = server(&[], 1, says).await;
    for (name, v4, v6) in [
        ("both.", Ok(1), Ok(1)),
        ("four.", Ok(1), Ok(0)),
        ("bare.", Ok(0), Ok(0)),
        ("half.", Ok(1), Err(NoAnswer)),
        ("broken.", Err(NoAnswer), Err(NoAnswer)),
        ("missing.", Err(NoSuchName), Err(NoSuchName)),
    ] {
        let lookup = server.look_up(name).await;
        let counts = (lookup.v4.clone().map(|v| v.len()), lookup.v6.clone().map(|v| v.len()));
        assert_eq!(counts, (v4, v6), "{name}: {lookup:?}");
    }
}

#[tokio::test]
async fn nothing_is_remembered() {
    let server = server(&[], 1, |_, _| Says::Address).await;
    let first = server.look_up("store.").await;
    let second = server.look_up("store.").await;
    assert_ne!(first.v4, second.v4, "the record's TTL is 300 s, and still it is asked again");
    assert_eq!(server.asked("store."), 4);
}

#[tokio::test]
async fn silence_ends_with_the_budget_and_is_no_answer() {
    let server = server(&[], 1, |_, _| Says::Nothing).await;
    let begin = Instant::now();
    let lookup = server.system.look_up(Name::from_str("store.").unwrap(), begin + Duration::from_millis(300)).await;
    assert_eq!((lookup.v4, lookup.v6), (Err(NameFailure::NoAnswer), Err(NameFailure::NoAnswer)));
    assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn the_search_list_is_walked_and_a_server_failure_in_it_ends_nothing() {
    fn says(name: &str, kind: RecordType) -> Says {
        match (name, kind) {
            ("s-0.s.graph.svc.cluster.local.", RecordType::A) => Says::Address,
            ("s-0.s.graph.svc.cluster.local.", _) => Says::NoData,
            ("s-0.s.graph.svc.svc.cluster.local.", _) | ("gone.a.b.svc.svc.cluster.local.", _) => Says::ServFail,
            _ => Says::NoName,
        }
    }
    let search = ["graph.svc.cluster.local.", "svc.cluster.local.", "cluster.local."];
    let server = server(&search, 5, says).await;
    let lookup = server.look_up("s-0.s.graph.svc").await;
    assert_eq!((lookup.v4.map(|v| v.len()), lookup.v6), (Ok(1), Ok(vec![])));
    assert_eq!(server.asked("s-0.s.graph.svc."), 0, "with fewer dots than ndots the plain name comes last");
    // Every candidate but one says that there is no such name; the one that failed might have known it.
    let lookup = server.look_up("gone.a.b.svc").await;
    assert_eq!(lookup.v4, Err(NameFailure::NoAnswer));
    let lookup = server.look_up("gone.x.b.svc").await;
    assert_eq!(lookup.v4, Err(NameFailure::NoSuchName));
    // A final dot makes a name whole.
    server.look_up("s-0.s.graph.svc.").await;
    assert_eq!(server.asked("s-0.s.graph.svc."), 2);
}

#[test]
fn candidates_follow_ndots() {
    let search = [Name::from_str("a.").unwrap(), Name::from_str("b.").unwrap()];
    let names = |text: &str, ndots| {
        let names = candidates(&Name::from_str(text).unwrap(), &search, ndots);
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names("x.y", 2), ["x.y.a.", "x.y.b.", "x.y."]);
    assert_eq!(names("x.y", 1), ["x.y.", "x.y.a.", "x.y.b."]);
    assert_eq!(names("x.y.", 5), ["x.y."]);
}
