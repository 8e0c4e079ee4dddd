//! `connections` and `events`.

use crate::{
    Ended,
    server::{Manner, tcp},
    storewatch,
};

const CONNECTIONS: &str = r#"[
{"namespace":"graph","pod":"server-0","uid":"u","cluster":"default","target":"1844095761336398711","local":"10.42.0.7:40000",
"remote":"10.42.1.17:8500","owner":"previous","state":"established","outcome":"established","opened_at":null,"age_ms":11220000,
"idle_ms":62000,"rtt_us":84,"retransmits":0,"via":"direct","container":{"cgroup":7,"listed":true},"pid":4711,"ended_at":null},
{"namespace":"graph","pod":"server-0","uid":"u","cluster":"default","target":"other","local":"10.42.0.7:40002",
"remote":"[fd00::7]:8500","owner":"unknown","state":"syn_sent","outcome":null,"opened_at":"2020-01-01T00:00:00Z","age_ms":2100,
"idle_ms":null,"rtt_us":null,"retransmits":1,"via":"direct","ended_at":null}]"#;

const ENDED: &str = r#"[{"namespace":"g","pod":"a","uid":"u","cluster":"one","target":"pd","local":"10.42.0.7:40000",
"remote":"10.42.1.9:8686","owner":"current","state":"closed","outcome":"reset","opened_at":"2020-01-01T00:00:00Z","age_ms":90000,
"idle_ms":500,"rtt_us":23456,"retransmits":12,"via":"proxy","ended_at":"2020-01-01T00:01:30Z"},
{"namespace":"g","pod":"a","uid":"u","cluster":"two","target":"pd","local":"10.42.0.7:40000","remote":"10.42.1.9:8686",
"owner":"current","state":"established","outcome":"established"}]"#;

const NOBODYS: &str = r#"[{"namespace":null,"pod":null,"uid":null,"cluster":"default","target":"1","local":"10.0.0.1:40000",
"remote":"10.42.1.9:8500","owner":"current","state":"established","outcome":"established","idle_ms":3000,"rtt_us":1000,
"retransmits":0,"container":{"cgroup":99,"listed":false},"pid":1,"unattributed":"stranger"}]"#;

const EVENTS: &str = r#"[
{"generation":7,"at":"2026-11-02T14:03:05.123Z","kind":"transition","cluster":"default","namespace":"graph","pod":"server-0",
"from":"StoreAnswering","to":"StaleTransport","message":"the pod keeps dialling an address that its store has left"},
{"generation":9,"at":"2026-11-02T14:03:06.000Z","kind":"connection","namespace":"graph","pod":"server-0","target":"other",
"outcome":"refused","message":"dial to other at 10.0.0.9:8500: refused"},
{"generation":12,"at":"2026-11-02T14:03:07.000Z","kind":"finding","target":"1","outcome":"StoreDown","to":"StoreDown","message":"m"}]"#;

#[test]
fn connections_show_whose_the_address_is() {
    let agent = tcp(Manner::answers(&[
        ("/v1/connections?limit=1000", 200, CONNECTIONS),
        (
            "/v1/connections?namespace=g&pod=a&cluster=c%2F1&target=pd&owner=current&outcome=reset&state=closed&limit=7",
            200,
            ENDED,
        ),
        ("/v1/connections?attributed=no&limit=1000", 200, NOBODYS),
        ("/v1/connections?pod=none&limit=1000", 200, "[]"),
    ]));
    let ask = |arguments: &[&str]| storewatch(&[&["connections", "--agent", &agent], arguments].concat(), &[]);
    let expected = "\
NAMESPACE   POD        TARGET                REMOTE            OWNER      STATE         OUTCOME       AGE      IDLE    RTT      RETRANS
graph       server-0   1844095761336398711   10.42.1.17:8500   previous   established   established   >3h07m   1m02s   0.08ms   0
graph       server-0   other                 [fd00::7]:8500    unknown    syn_sent      -             2s       -       -        1
";
    assert_eq!(ask(&[]), Ended { code: Some(0), out: expected.to_owned(), err: String::new() });

    let filters = [
        "--pod",
        "g/a",
        "--cluster",
        "c/1",
        "--target",
        "pd",
        "--owner",
        "current",
        "--outcome",
        "reset",
        "--state",
        "closed",
        "--limit",
        "7",
    ];
    let ended = ask(&filters);
    let lines: Vec<_> = ended.out.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>()[10..], ["RETRANS", "ENDED", "AGO", "VIA", "CLUSTER"]);
    let cells: Vec<_> = lines[1].split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[6..11], ["reset", "1m30s", "500ms", "23.5ms", "12"]);
    assert_eq!(cells[12..], ["proxy", "one"]);

    let nobodys = ask(&["--unattributed"]);
    let expected = "\
REASON     PID   CGROUP   NETNS   TARGET   REMOTE           OWNER     STATE         IDLE   RTT      RETRANS
stranger   1     99       -       1        10.42.1.9:8500   current   established   3s     1.00ms   0
";
    assert_eq!(nobodys.out, expected);
    assert_eq!(ask(&["--pod", "none"]).out, "No such connection.\n");
    assert_eq!(ask(&["-o", "json"]).out, format!("{CONNECTIONS}\n"));
}

#[test]
fn what_is_left_out_is_said_beside_the_answer() {
    let agent = tcp(Manner::Says(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\nstorewatch-truncated: true\r\nstorewatch-total: 12345\r\n\
         storewatch-unattributed: stranger=3, no_owner=1\r\n\r\n[]",
    ));
    let ended = storewatch(&["connections", "--agent", &agent], &[]);
    let remarks = "storewatch: 0 of 12345 connections; --limit shows more\n\
                   storewatch: other sockets to the watched ports: stranger=3, no_owner=1; see --unattributed\n";
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), remarks));
    assert_eq!(
        storewatch(&["connections", "-o", "json", "--agent", &agent], &[]).out,
        "[]\n",
        "nothing but the answer"
    );
}

#[test]
fn events_are_lines_and_filters_are_the_agents() {
    let agent = tcp(Manner::answers(&[
        ("/v1/events", 200, EVENTS),
        ("/v1/events?namespace=graph&pod=server-0&kind=transition%2Cfinding&since=5", 200, "[]"),
        (
            "/v1/pods",
            200,
            r#"[{"namespace": "graph", "name": "server-0", "status": "Ready", "ready": true, "reason": "StoreAnswering", "message": ""}]"#,
        ),
    ]));
    let ended = storewatch(&["events", "--agent", &agent], &[]);
    let expected = "\
TIME                       GENERATION   KIND         POD              TARGET   WHAT                               MESSAGE
2026-11-02T14:03:05.123Z   7            transition   graph/server-0   -        StoreAnswering -> StaleTransport   the pod keeps dialling an address that its store has left
2026-11-02T14:03:06.000Z   9            connection   graph/server-0   other    refused                            dial to other at 10.0.0.9:8500: refused
2026-11-02T14:03:07.000Z   12           finding      -                1        -> StoreDown                       m
";
    assert_eq!(ended, Ended { code: Some(0), out: expected.to_owned(), err: String::new() });
    let filters =
        ["events", "--since", "5", "--kind", "transition,finding", "--pod", "graph/server-0", "--agent", &agent];
    assert_eq!(storewatch(&filters, &[]).out, "Nothing happened.\n");
    assert_eq!(storewatch(&["events", "-o", "json", "--agent", &agent], &[]).out, format!("{EVENTS}\n"));
}

#[test]
fn the_agents_own_complaint_is_passed_on() {
    let problem = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"query key `owner`: `me` must be one of: current"}"#;
    let busy = r#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"too many questions"}"#;
    let agent = tcp(Manner::answers(&[
        ("/v1/connections?owner=me&limit=1000", 400, problem),
        ("/v1/connections?limit=1000", 503, busy),
        ("/v1/events?kind=x", 400, problem),
    ]));
    let rows: [(&[&str], &str); 3] = [
        (&["connections", "--owner", "me"], "answers 400 Bad Request to /v1/connections: query key `owner`: `me` must"),
        (&["connections"], "answers 503 Service Unavailable to /v1/connections: too many questions"),
        (&["events", "--follow", "--kind", "x"], "answers 400 Bad Request to /v1/events: query key"),
    ];
    for (arguments, complaint) in rows {
        let ended = storewatch(&[arguments, &["--agent", &agent]].concat(), &[]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.err.contains(complaint) && ended.err.lines().count() == 1, "{ended:?}");
    }
    let rows: [(&[&str], &str); 4] = [
        (&["connections", "--limit", "0"], "1..=10000"),
        (&["connections", "--unattributed", "--pod", "a"], "cannot be used with"),
        (&["connections", "--namespace", "x", "--pod", "y/z"], "is not in --namespace"),
        (&["events", "--since", "-1"], "unexpected argument"),
    ];
    for (arguments, complaint) in rows {
        let ended = storewatch(&[arguments, &["--agent", &agent]].concat(), &[]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.err.contains(complaint), "{ended:?}");
    }
}
