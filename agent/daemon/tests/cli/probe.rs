use crate::{
    Ended,
    server::{Manner, PATIENCE, tcp, unix},
    storewatch,
};
use std::time::Instant;

const READY: &str = r#"{"ready":true,"status":"Ready","cluster":"default","storage":"hstore","reason":"StoreAnswering",
"message":"1 of 3 stores answered","active_stores":3,"generation":4,"findings":[]}"#;
const NOT_READY: &str = r#"{"ready":false,"status":"NotReady","cluster":"default","storage":"hstore","reason":"NoStoreAnswers",
"message":"none of 3 stores answered","active_stores":3,"generation":5,"findings":["StoreDown"]}"#;
const PODS: &str = r#"[
{"namespace":"graph","name":"up","uid":"u-1","ready":true,"status":"Ready","reason":"StoreAnswering","message":"fine"},
{"namespace":"graph","name":"down","uid":"u-2","ready":false,"status":"NotReady","reason":"NoStoreAnswers","message":"bad"}]"#;

fn agent() -> String {
    tcp(Manner::answers(&[
        ("/readiness/pods/graph/up", 200, READY),
        ("/readiness/pods/graph/down", 503, NOT_READY),
        ("/readiness/uid/u-1", 200, READY),
        ("/readiness/uid/u-2", 503, NOT_READY),
        ("/readiness/uid/a%2Fb%3F", 200, READY),
        ("/readiness/self", 503, NOT_READY),
        ("/readiness/pods/graph/proxied", 503, "<html>upstream gone</html>"),
        ("/readiness/pods/graph/broken", 500, "{}"),
    ]))
}

const READY_LINE: &str = "Ready StoreAnswering: 1 of 3 stores answered\n";
const NOT_READY_LINE: &str = "NotReady NoStoreAnswers: none of 3 stores answered\n";

#[test]
fn the_exit_code_is_the_answer() {
    let agent = agent();
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32, &'a str);
    let rows: [Row<'_>; 9] = [
        (&["graph/up"], &[], 0, READY_LINE),
        (&["graph/down"], &[], 1, NOT_READY_LINE),
        (&["--uid", "u-1"], &[], 0, READY_LINE),
        (&["--uid", "u-2"], &[], 1, NOT_READY_LINE),
        (&["--uid", "a/b?"], &[], 0, READY_LINE),
        (&["--self"], &[], 1, NOT_READY_LINE),
        (&[], &[("POD_UID", "u-2")], 1, NOT_READY_LINE),
        // What is said on the command line wins over the variable.
        (&["graph/up"], &[("POD_UID", "u-2")], 0, READY_LINE),
        (&["--self", "--on-error", "ready"], &[("POD_UID", "u-1")], 1, NOT_READY_LINE),
    ];
    for (arguments, environment, code, line) in rows {
        let environment: Vec<_> = environment.iter().copied().chain([("STOREWATCH_AGENT", agent.as_str())]).collect();
        let ended = storewatch(&[&["probe"], arguments].concat(), &environment);
        let expected = Ended { code: Some(code), out: line.to_owned(), err: String::new() };
        assert_eq!(ended, expected, "{arguments:?}");
    }
    let json = storewatch(&["probe", "graph/down", "-o", "json", "--agent", &agent], &[]);
    assert_eq!(json.code, Some(1));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json.out).unwrap()["reason"], "NoStoreAnswers");
}

#[test]
fn the_admin_socket_can_answer_too() {
    let folder = tempfile::tempdir().unwrap();
    let agent = unix(&folder.path().join("a.sock"), Manner::answers(&[("/v1/pods", 200, PODS)]));
    let rows: [(&[&str], i32, &str); 4] = [
        (&["graph/up"], 0, "Ready StoreAnswering: fine\n"),
        (&["--uid", "u-2"], 1, "NotReady NoStoreAnswers: bad\n"),
        (&["graph/none"], 2, ""),
        (&["--self"], 2, ""),
    ];
    for (arguments, code, line) in rows {
        let ended = storewatch(&[&["probe", "--agent", &agent], arguments].concat(), &[]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(code), line), "{ended:?}");
        assert_eq!(ended.err.is_empty(), code < 2, "{ended:?}");
    }
    // The admin port instead of the probe port.
    let agent = tcp(Manner::answers(&[("/v1/pods", 200, PODS)]));
    assert_eq!(storewatch(&["probe", "--agent", &agent, "graph/down"], &[]).code, Some(1));
    let unknown = storewatch(&["probe", "--agent", &agent, "graph/none"], &[]);
    assert_eq!(
        (unknown.code, unknown.err),
        (Some(2), format!("storewatch: the agent at {agent} does not know pod graph/none\n"))
    );
}

#[test]
fn no_answer_is_exit_code_2_or_ready_if_so_wished() {
    let folder = tempfile::tempdir().unwrap();
    let dead = folder.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let plain = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    let rows = [
        (agent(), "graph/none", "does not know pod graph/none"),
        (agent(), "graph/proxied", "is no storewatch agent"),
        (agent(), "graph/broken", "answers 500 Internal Server Error"),
        // A port that was free a moment ago.
        (format!("http://127.0.0.1:{}", free_port()), "graph/up", "nobody listens there"),
        ("unix:/nowhere/a.sock".to_owned(), "graph/up", "there is no such socket; does the agent run?"),
        (format!("unix:{}", dead.display()), "graph/up", "nobody listens there"),
        (tcp(Manner::Closes), "graph/up", "127.0.0.1"),
        (tcp(Manner::Silent), "graph/up", "no answer from the agent at"),
        (tcp(Manner::Says("SSH-2.0-OpenSSH_9.2\r\n")), "graph/up", "is no storewatch agent"),
        (tcp(Manner::Says(plain)), "graph/up", "is no storewatch agent"),
        (tcp(Manner::Says("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n")), "graph/up", "broke off"),
    ];
    for (agent, pod, complaint) in rows {
        let started = Instant::now();
        let ended = storewatch(&["probe", pod, "--timeout", "400ms", "--agent", &agent], &[]);
        assert!(started.elapsed() < PATIENCE, "{agent}: {ended:?}");
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{agent}: {ended:?}");
        assert!(ended.err.contains(complaint) && ended.err.lines().count() == 1, "{complaint}: {ended:?}");

        let ended = storewatch(&["probe", pod, "--timeout", "400ms", "--agent", &agent, "--on-error", "ready"], &[]);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{agent}: {ended:?}");
        assert!(ended.out.starts_with("Ready because of --on-error ready: "), "{ended:?}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2_whatever_is_wished() {
    let rows: [(&[&str], &str); 7] = [
        (&[], "say which pod"),
        (&["nameless"], "\"nameless\" is no pod; write NAMESPACE/POD"),
        (&["a/b/c"], "is no pod"),
        (&["a/b", "--uid", "u"], "cannot be used with"),
        (&["a/b", "--self"], "cannot be used with"),
        (&["a/b", "--timeout", "0s"], "must be longer than nothing"),
        (&["a/b", "--agent", "127.0.0.1:9465"], "must be unix:PATH or http://HOST:PORT"),
    ];
    for (arguments, complaint) in rows {
        let ended = storewatch(&[&["probe", "--on-error", "ready"], arguments].concat(), &[]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.err.contains(complaint), "{ended:?}");
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
