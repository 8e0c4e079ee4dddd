use crate::{
    server::{Manner, tcp, unix},
    storewatch,
};

const SNAPSHOT: &str = r#"{"node":"node-a","generation":412,"taken_at":"2026-01-01T00:00:00Z","readiness":
{"ready":true,"status":"Ready","cluster":"default","reason":"StoreAnswering","message":"1 of 3 stores answered",
"active_stores":3,"since_ms":92000,"age_ms":640,"findings":["PdDown"]},
"pods":[{"namespace":"graph","name":"server-0","uid":"u","ready":true,"status":"Ready","reason":"StoreAnswering"},
{"namespace":"graph","name":"server-1","uid":"v","ready":false,"status":"NotReady","reason":"NoStoreAnswers"}],
"stores":[{"id":"1","label":"1","address":"s-0:8500","answering":true},{"label":"static-0","address":"s-1:8500","answering":false}],
"pd":{"reachable":false,"has_leader":false,"peers":[{"peer":0,"address":"pd-0:8686","reachable":false,"last_error":"refused"}]},
"sources":[{"name":"kernel","state":"degraded","detail":"no BTF","lost":7,"age_ms":100},
{"name":"pods","state":"absent","detail":"pods.source: none","lost":0,"age_ms":null}]}"#;

const PODS: &str = r#"[{"namespace":"graph","name":"hugegraph-server-0","uid":"u","workload":"StatefulSet/hugegraph-server",
"ready":false,"status":"NotReady","reason":"PodCannotReachStores","message":"m","since":"2020-01-01T00:00:00Z",
"findings":[{"code":"PathBlackhole","target":"1","severity":"critical"},{"code":"StaleTransport","mode":"dialing","target":"2",
"severity":"critical"},{"code":"PathBlackhole","target":"2","severity":"critical"}]},
{"namespace":"g","name":"a","uid":"v","workload":null,"ready":true,"status":"Ready","reason":"StoreAnswering","message":"m",
"since":"2020-01-01T00:00:00Z","findings":[]}]"#;

const STORES: &str = r#"[{"cluster":"default","id":"1844095761336398711","label":"1844095761336398711","address":"store-0:8500",
"reported_state":"Up","answering":true,"last_ping":{"outcome":"serving","age_ms":1200,"dns_ms":null,"connect_ms":0.1,"http2_ms":0.2,
"rpc_ms":0.4},"findings":[]},
{"cluster":"default","id":null,"label":"static-0","address":"[fd00::1]:8500","reported_state":null,"answering":false,
"last_ping":{"outcome":"deadline","age_ms":300,"dns_ms":null,"connect_ms":1000.0,"http2_ms":null,"rpc_ms":null},
"findings":[{"code":"StoreHung"}]}]"#;

fn agent() -> String {
    tcp(Manner::answers(&[("/v1/snapshot", 200, SNAPSHOT), ("/v1/pods", 200, PODS), ("/v1/stores", 200, STORES)]))
}

#[test]
fn status_shows_the_node_and_the_sources() {
    let ended = storewatch(&["status", "--agent", &agent()], &[]);
    let expected = "\
node-a   Ready   StoreAnswering   for 1m32s
  1 of 3 stores answered

Pods       1 of 2 ready
           graph/server-1: NotReady NoStoreAnswers
           why, and what to do: storewatch explain graph/server-1
Stores     1 of 2 answer
PD         not reachable; pd-0:8686 away (refused)
Findings   PdDown
Evidence   640ms old, generation 412

SOURCE   STATE      AGE     LOST   DETAIL
kernel   degraded   100ms   7      no BTF
pods     absent     -       0      pods.source: none
";
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(0), expected, ""));
}

#[test]
fn pods_and_stores_are_aligned() {
    let agent = agent();
    let pods = storewatch(&["pods", "--agent", &agent], &[]);
    assert_eq!((pods.code, pods.err.as_str()), (Some(0), ""));
    let lines: Vec<_> = pods.out.lines().collect();
    let column = |name: &str| lines[0].find(name).unwrap();
    for (line, status, findings) in [(1, "NotReady", "PathBlackhole,StaleTransport(dialing)"), (2, "Ready", "-")] {
        assert!(lines[line][column("STATUS")..].starts_with(status), "{}", pods.out);
        assert!(lines[line][column("FINDINGS")..].starts_with(findings), "{}", pods.out);
    }
    let stores = storewatch(&["stores"], &[("STOREWATCH_AGENT", &agent)]);
    let expected = "\
STORE                 ADDRESS          PD SAYS   ANSWERS   LAST PING   TOOK    AGO     FINDINGS
1844095761336398711   store-0:8500     Up        yes       serving     0.7ms   1s      -
static-0              [fd00::1]:8500   -         no        deadline    1s      300ms   StoreHung
";
    assert_eq!((stores.code, stores.out.as_str(), stores.err.as_str()), (Some(0), expected, ""));
}

#[test]
fn json_is_the_agents_own() {
    let folder = tempfile::tempdir().unwrap();
    let agent =
        unix(&folder.path().join("a.sock"), Manner::answers(&[("/v1/stores", 200, STORES), ("/v1/pods", 200, "[]")]));
    let ended = storewatch(&["-o", "json", "stores", "--agent", &agent], &[]);
    assert_eq!((ended.code, ended.out), (Some(0), format!("{STORES}\n")));
    let ended = storewatch(&["pods", "--agent", &agent], &[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "No pod is watched on this node.\n"));
}

#[test]
fn no_colour_leaves_a_pipe() {
    let ended = storewatch(&["pods", "--agent", &agent()], &[("TERM", "xterm-256color")]);
    assert!(!ended.out.contains('\x1b'), "{ended:?}");
}

#[test]
fn an_agent_that_does_not_answer_rightly_is_exit_code_2_and_one_line() {
    let probe_port = tcp(Manner::answers(&[]));
    let rows = [
        (probe_port.as_str(), "answers 404 Not Found to /v1/snapshot; is that its probe port, and not the admin port?"),
        (
            "unix:/nowhere/a.sock",
            "the agent cannot be reached at unix:/nowhere/a.sock: there is no such socket; does the agent run?",
        ),
    ];
    for (agent, complaint) in rows {
        let ended = storewatch(&["status", "--agent", agent], &[]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.err.ends_with(&format!("{complaint}\n")) && ended.err.lines().count() == 1, "{ended:?}");
    }
    let wrong_shape = tcp(Manner::answers(&[("/v1/pods", 200, "{\"a\":1}")]));
    let ended = storewatch(&["pods", "--agent", &wrong_shape], &[]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("is no storewatch agent"), "{ended:?}");
    let silent = tcp(Manner::Silent);
    let ended = storewatch(&["stores", "--timeout", "300ms", "--agent", &silent], &[]);
    assert_eq!(
        (ended.code, ended.err),
        (Some(2), format!("storewatch: no answer from the agent at {silent} within 300ms\n"))
    );
}

#[test]
fn usage_is_exit_code_2_and_help_is_0_with_an_example() {
    for arguments in [&[][..], &["nonsense"], &["run"], &["status", "--nonsense"], &["pods", "-o", "xml"]] {
        let ended = storewatch(arguments, &[]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(!ended.err.is_empty());
    }
    for command in [
        "run",
        "check-config",
        "doctor",
        "status",
        "pods",
        "stores",
        "connections",
        "events",
        "explain",
        "probe",
        "record",
        "replay",
        "demo",
    ] {
        let ended = storewatch(&[command, "--help"], &[]);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{command}");
        assert!(ended.out.contains("Example") && ended.out.contains(&format!("storewatch {command}")), "{}", ended.out);
    }
    assert_eq!(storewatch(&["--version"], &[]).out, format!("storewatch {}\n", env!("CARGO_PKG_VERSION")));
    // A wrong address in the environment does not disturb commands that ask nobody.
    assert_eq!(storewatch(&["--version"], &[("STOREWATCH_AGENT", "nonsense")]).code, Some(0));
}
