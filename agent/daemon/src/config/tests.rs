use super::*;
use proptest::prelude::*;
use storewatch_core::policy::Settings;

fn surroundings(environment: &[(&str, &str)], sets: &[&str]) -> Surroundings {
    let mut environment: Vec<_> = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    environment.push(("NODE_NAME".into(), "node-a".into()));
    Surroundings { environment, sets: sets.iter().map(|set| (*set).to_owned()).collect() }
}

fn read(text: &str) -> Result<Config, Mistakes> {
    parse(text, "x.yaml", &surroundings(&[], &[]))
}

/// The complaints about `text`, one a line.
fn complaints(text: &str) -> String {
    match read(text) {
        Ok(config) => panic!("no mistake found in:\n{text}\n{config:?}"),
        Err(mistakes) => mistakes.to_string(),
    }
}

const SMALL: &str = "hugegraph: {pd_peers: [\"pd-0.pd.graph.svc:8686\"]}\n";

#[test]
fn defaults_are_those_of_the_documentation() {
    let config = read(SMALL).unwrap();
    let expected = r#"node: node-a
listen:
  probe: "[::]:9465"
  metrics: "[::]:9466"
  admin: "127.0.0.1:9467"
  admin_socket: /run/storewatch/admin.sock
hugegraph:
  pd_peers: ["pd-0.pd.graph.svc:8686"]
  stores: []
  store_port: 8500
  pd_port: 8686
ping:
  interval: 2s
  idle_interval: 20s
  pd_interval: 10s
  dns_interval: 10s
  timeout: 1s
  max_stores_per_round: 16
pods:
  source: kubernetes
  selector: "app.kubernetes.io/name=hugegraph,app.kubernetes.io/component=server"
  file: /etc/storewatch/pods.yaml
  cri_socket: /run/containerd/containerd.sock
kubernetes:
  namespaces: ["graph"]
  store_selector: "app.kubernetes.io/name=hugegraph,app.kubernetes.io/component=store"
  pd_selector: "app.kubernetes.io/name=hugegraph,app.kubernetes.io/component=pd"
  readiness_gate: "off"
  events: "on"
healing:
  mode: "off"
kernel:
  mode: auto
  inventory_interval: 15s
verdict:
  failure_threshold: 2
  success_threshold: 1
  window: 150s
  stale_suspect_after: 1m
  stale_confirm_after: 4m
  stale_transport: not_ready
  min_other_ready: 1
  on_unknown: ready
state_file: /var/lib/storewatch/state.json
log:
  level: info
  format: text
"#;
    assert_eq!(config.to_yaml(), expected);
    assert_eq!(read(expected).unwrap(), config);
}

#[test]
fn every_printed_key_is_in_the_list_of_hints() {
    let config = read(SMALL).unwrap();
    let mut section = String::new();
    let mut printed = Vec::new();
    for line in config.to_yaml().lines() {
        let (key, value) = line.split_once(':').unwrap();
        match key.strip_prefix("  ") {
            Some(key) => printed.push(format!("{section}.{key}")),
            None if value.is_empty() => section = key.to_owned(),
            None => printed.push(key.to_owned()),
        }
    }
    let known: Vec<_> = keys::KEYS.iter().filter(|key| !key.starts_with("clusters")).map(ToString::to_string).collect();
    assert_eq!(printed, known);
}

#[test]
fn settings_carry_what_the_judge_needs() {
    let text = "node: n1\nclusters:\n- {name: a, pd_peers: [\"p:1\"]}\n- {name: b, stores: [\"[fd00::1]:8501\"], store_port: 8501}\n\
                kernel: {mode: off}\nping: {interval: 1s}\n";
    let settings = Settings::from(&read(text).unwrap());
    assert_eq!(&*settings.node, "n1");
    assert!(settings.kernel_off);
    assert_eq!(settings.policy.ping_interval, std::time::Duration::from_secs(1));
    assert_eq!(settings.clusters.len(), 2);
    assert_eq!(settings.clusters[1].stores[0].to_string(), "[fd00::1]:8501");
    assert_eq!(settings.clusters[1].store_port, 8501);
}

/// Each row: a fragment, and the whole complaint about it.
#[test]
fn each_rule_has_its_complaint() {
    let rows = [
        ("ping: {interval: 5ms}", "x.yaml:2: ping.interval: \"5ms\": must be 200ms to 5m"),
        ("ping: {interval: 6m}", "x.yaml:2: ping.interval: \"6m\": must be 200ms to 5m"),
        (
            "ping: {interval: 2}",
            "x.yaml:2: ping.interval: 2: has no unit; write a whole number and a unit (ms, s, m, h), such as 2s",
        ),
        (
            "ping: {interval: 2 s}",
            "x.yaml:2: ping.interval: \"2 s\": is no duration; write a whole number and a unit (ms, s, m, h), such as 2s",
        ),
        (
            "ping: {interval: -2s}",
            "x.yaml:2: ping.interval: \"-2s\": is no duration; write a whole number and a unit (ms, s, m, h), such as 2s",
        ),
        (
            "ping: {interval: 99999999999999999999s}",
            "x.yaml:2: ping.interval: \"99999999999999999999s\": is longer than a year",
        ),
        ("ping: {interval: [2s]}", "x.yaml:2: ping.interval: [\"2s\"]: must be a duration, such as 2s"),
        ("ping: {interval: }", "x.yaml:2: ping.interval: null: has no value; leave the key out for the default"),
        ("ping: {timeout: 49ms}", "x.yaml:2: ping.timeout: \"49ms\": must be 50ms to 30s"),
        ("ping: {timeout: 31s}", "x.yaml:2: ping.timeout: \"31s\": must be 50ms to 30s"),
        (
            "ping: {max_stores_per_round: 0}",
            "x.yaml:2: ping.max_stores_per_round: 0: must be a whole number from 1 to 1024",
        ),
        ("kernel: {inventory_interval: 499ms}", "x.yaml:2: kernel.inventory_interval: \"499ms\": must be 500ms to 1h"),
        ("kernel: {mode: on}", "x.yaml:2: kernel.mode: \"on\": must be one of: auto, required, off"),
        ("kernel: {mode: true}", "x.yaml:2: kernel.mode: true: must be one of: auto, required, off"),
        ("kernel: auto", "x.yaml:2: kernel: \"auto\": must be a mapping of keys to values"),
        ("verdict: {window: 1s}", "x.yaml:2: verdict.window: 1s: must be at least ping.interval (2s)"),
        ("ping: {interval: 4m}", "x.yaml:2: ping.interval: 4m: must be at most verdict.window (150s)"),
        (
            "verdict: {stale_suspect_after: 999ms}",
            "x.yaml:2: verdict.stale_suspect_after: \"999ms\": must be 1s to 24h",
        ),
        (
            "verdict:\n  stale_suspect_after: 5m",
            "x.yaml:3: verdict.stale_suspect_after: 5m: must be shorter than verdict.stale_confirm_after (4m)",
        ),
        (
            "verdict:\n  stale_suspect_after: 30s\n  stale_confirm_after: 30s",
            "x.yaml:4: verdict.stale_confirm_after: 30s: must be longer than verdict.stale_suspect_after (30s)",
        ),
        (
            "verdict: {failure_threshold: 0}",
            "x.yaml:2: verdict.failure_threshold: 0: must be a whole number from 1 to 1000",
        ),
        (
            "verdict: {failure_threshold: 1.5}",
            "x.yaml:2: verdict.failure_threshold: 1.5: must be a whole number from 1 to 1000",
        ),
        ("verdict: {on_unknown: maybe}", "x.yaml:2: verdict.on_unknown: \"maybe\": must be one of: ready, not_ready"),
        (
            "listen: {admin: \"0.0.0.0:9467\"}",
            "x.yaml:2: listen.admin: \"0.0.0.0:9467\": must be a loopback address (127.0.0.0/8 or [::1]): the admin API has \
             no authentication",
        ),
        ("listen: {probe: off}", "x.yaml:2: listen.probe: \"off\": cannot be off"),
        (
            "listen: {probe: \":9465\"}",
            "x.yaml:2: listen.probe: \":9465\": must be ADDRESS:PORT with a literal address, such as 127.0.0.1:9467 or \
             \"[::]:9465\"",
        ),
        ("listen: {metrics: \"[::]:0\"}", "x.yaml:2: listen.metrics: \"[::]:0\": must have a port from 1 to 65535"),
        (
            "listen: {metrics: \"[::]:9465\"}",
            "x.yaml:2: listen.metrics: [::]:9465: takes the same port as listen.probe",
        ),
        (
            "listen: {admin: \"127.0.0.1:9465\"}",
            "x.yaml:2: listen.admin: 127.0.0.1:9465: takes the same port as listen.probe",
        ),
        (
            "listen: {admin_socket: run/a.sock}",
            "x.yaml:2: listen.admin_socket: \"run/a.sock\": must be an absolute path",
        ),
        ("pods: {source: docker}", "x.yaml:2: pods.source: \"docker\": must be one of: kubernetes, cri, file, none"),
        (
            "pods: {selector: \"a=b,\"}",
            "x.yaml:2: pods.selector: \"a=b,\": is no label selector: an empty requirement, as after a trailing comma",
        ),
        (
            "kubernetes: {namespaces: [A]}",
            "x.yaml:2: kubernetes.namespaces[0]: \"A\": must consist of lower-case letters, digits, '-' and '.', begin and \
             end with a letter or digit",
        ),
        ("kubernetes: {namespaces: [a, b, a]}", "x.yaml:2: kubernetes.namespaces: \"a\": is in the list twice"),
        ("kubernetes: {readiness_gate: true}", "x.yaml:2: kubernetes.readiness_gate: true: must be one of: off, on"),
        ("log: {level: verbose}", "x.yaml:2: log.level: \"verbose\": must be one of: error, warn, info, debug, trace"),
        ("node: 5", "x.yaml:2: node: 5: must be a text; put it in quotes"),
        ("node: \"a b\"", "x.yaml:2: node: \"a b\": must be 1 to 253 characters without white space"),
        ("state_file: /", "x.yaml:2: state_file: \"/\": must name a file, or be \"\" for none"),
        ("state_file: \"a\\nb\"", "x.yaml:2: state_file: \"a\\nb\": must not contain control characters"),
        ("pingg: {interval: 1s}", "x.yaml:2: pingg: unknown key; did you mean ping?"),
        ("ping: {intervall: 1s}", "x.yaml:2: ping.intervall: unknown key; did you mean ping.interval?"),
        ("ping: {Idle-Interval: 1s}", "x.yaml:2: ping.Idle-Interval: unknown key; did you mean ping.idle_interval?"),
        ("failure_threshold: 3", "x.yaml:2: failure_threshold: unknown key; did you mean verdict.failure_threshold?"),
        ("healing: {colour: red}", "x.yaml:2: healing.colour: unknown key; known here: mode"),
        ("ping: {interval: 1s, interval: 2s}", "x.yaml:2: ping.interval: is there twice, first in line 2"),
        (
            "clusters: [{name: a, stores: [\"s:1\"]}]",
            "x.yaml:1: hugegraph: give either hugegraph (one cluster) or clusters (a list), not both",
        ),
    ];
    for (fragment, expected) in rows {
        assert_eq!(complaints(&format!("{SMALL}{fragment}\n")), expected);
    }
}

#[test]
fn targets_are_host_and_port_and_nothing_else() {
    let rows = [
        ("http://pd:8686", "must be host:port without http://"),
        ("pd:8686,", "contains a comma; write one host:port per list entry"),
        ("pd-0:8686,pd-1:8686", "contains a comma; write one host:port per list entry"),
        ("", "is empty, as after a trailing comma; write host:port"),
        ("fd00::1:8686", "looks like an IPv6 address without brackets; write [ADDRESS]:PORT"),
        ("[fd00::1:8686", "lacks the closing bracket of its IPv6 address"),
        ("[fd00::x]:8686", "has no IPv6 address between its brackets"),
        ("[fe80::1%eth0]:8686", "must not have a zone (%)"),
        ("[fd00::1]", "lacks a port; write host:port"),
        ("[fd00::1]8686", "lacks a port; write host:port"),
        ("pd", "lacks a port; write host:port"),
        ("pd:", "lacks a port; write host:port"),
        ("pd:0", "must have a port from 1 to 65535"),
        ("pd:65536", "must have a port from 1 to 65535"),
        ("pd:+1", "must have a port from 1 to 65535"),
        ("pd:grpc", "must have a port from 1 to 65535"),
        (":8686", "lacks a host; write host:port"),
        ("pd 0:8686", "must not contain white space"),
        ("pd:8686/path", "must be host:port and nothing else"),
        ("user@pd:8686", "must be host:port and nothing else"),
        ("-pd:8686", "has no valid host name"),
        ("a..b:8686", "has no valid host name"),
        ("10.0.0.300:8686", "has no valid IPv4 address"),
        ("10.0.1:8686", "has no valid IPv4 address"),
    ];
    for (target, rule) in rows {
        let text = format!("hugegraph:\n  pd_peers: [\"ok:1\", {target:?}]\n");
        assert_eq!(complaints(&text), format!("x.yaml:2: hugegraph.pd_peers[1]: {target:?}: {rule}"));
    }
    let fine = ["pd:1", "PD-0.pd.graph.svc.cluster.local.:8686", "10.0.0.3:8686", "[fd00::1]:8686", "a_b:65535"];
    let list = fine.iter().map(|target| format!("{target:?}")).collect::<Vec<_>>().join(",");
    let config = read(&format!("hugegraph: {{pd_peers: [{list}]}}\n")).unwrap();
    assert_eq!(config.clusters[0].pd_peers.iter().map(ToString::to_string).collect::<Vec<_>>(), fine);
}

#[test]
fn clusters_have_rules_of_their_own() {
    let rows = [
        ("{}", "x.yaml: hugegraph.pd_peers: is required unless stores is given: a list of host:port"),
        ("hugegraph: {}", "x.yaml:1: hugegraph.pd_peers: is required unless stores is given: a list of host:port"),
        (
            "hugegraph: {pd_peers: []}",
            "x.yaml:1: hugegraph.pd_peers: is required unless stores is given: a list of host:port",
        ),
        (
            "hugegraph: {pd_peers: \"a:1,b:1\"}",
            "x.yaml:1: hugegraph.pd_peers: \"a:1,b:1\": must be a list, such as [\"a\", \"b\"], not one text",
        ),
        ("hugegraph: {pd_peers: {a: 1}}", "x.yaml:1: hugegraph.pd_peers: {a: 1}: must be a list"),
        ("hugegraph: {stores: [\"A:1\", \"a.:1\"]}", "x.yaml:1: hugegraph.stores: \"a.:1\": is in the list twice"),
        (
            "hugegraph: {stores: [\"a:1\"], store_port: 0}",
            "x.yaml:1: hugegraph.store_port: 0: must be a port, 1 to 65535",
        ),
        (
            "hugegraph: {stores: [\"a:1\"], store_port: 8686}",
            "x.yaml:1: hugegraph.store_port: 8686: must differ from pd_port",
        ),
        (
            "hugegraph: {stores: [\"a:1\"], namespaces: [b]}",
            "x.yaml:1: hugegraph.namespaces: unknown key; did you mean kubernetes.namespaces?",
        ),
        ("clusters: []", "x.yaml:1: clusters: []: must be a list with at least one cluster"),
        ("clusters: [{stores: [\"a:1\"]}]", "x.yaml:1: clusters[0].name: is required"),
        (
            "clusters: [{name: a/b, stores: [\"a:1\"]}]",
            "x.yaml:1: clusters[0].name: \"a/b\": must be 1 to 63 letters, digits, '-', '_' or '.', and begin with a letter \
             or digit",
        ),
        (
            "clusters: [{name: a, stores: [\"a:1\"]}, {name: a, stores: [\"b:1\"]}]",
            "x.yaml:1: clusters[1].name: \"a\": is the name of an earlier cluster",
        ),
        (
            "clusters: [{name: a}]",
            "x.yaml:1: clusters[0].pd_peers: is required unless stores is given: a list of host:port",
        ),
        (
            "clusters: [{name: a, stores: [\"a:1\"]}]\nkubernetes: {namespaces: [b]}",
            "x.yaml:2: kubernetes.namespaces: belongs to each entry of clusters when there is that list",
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(complaints(&format!("{text}\n")), expected);
    }
    let config = read(
        "pods: {selector: app=x}\nclusters:\n\
         - {name: prod, pd_peers: [\"pd-0.pd.one.svc:1\", \"pd-0.pd.two.svc.cluster.local:1\", \"pd-1.pd.one.svc:1\"]}\n\
         - {name: test, stores: [\"s:1\"], selector: \"app in (a, b)\", namespaces: [three]}\n",
    )
    .unwrap();
    assert_eq!(config.clusters[0].namespaces, ["one", "two"]);
    assert_eq!(config.clusters[0].selector.to_string(), "app=x");
    assert_eq!(config.clusters[1].namespaces, ["three"]);
    assert_eq!(config.clusters[1].selector.to_string(), "app in (a,b)");
    assert_eq!(read(&config.to_yaml()).unwrap(), config);
}

#[test]
fn all_mistakes_come_at_once_and_in_place() {
    let text = "node: \"\"\nlisten:\n  probe: nowhere\nhugegraph:\n  pd_peers: [\"http://a:1\", \"b\"]\nping:\n  interval: 1\n\
                \x20 typo: 1\nverdict: {window: 0s}\nlog: {level: loud}\n";
    let expected = [
        "x.yaml:1: node: ",
        "x.yaml:3: listen.probe: ",
        "x.yaml:5: hugegraph.pd_peers[0]: ",
        "x.yaml:5: hugegraph.pd_peers[1]: ",
        "x.yaml:7: ping.interval: ",
        "x.yaml:8: ping.typo: ",
        "x.yaml:9: verdict.window: ",
        "x.yaml:10: log.level: ",
    ];
    let found = complaints(text);
    assert_eq!(found.lines().count(), expected.len(), "{found}");
    for (line, start) in found.lines().zip(expected) {
        assert!(line.starts_with(start), "{line} should start with {start}");
    }
}

#[test]
fn overrides_win_in_their_order() {
    let environment = [
        ("STOREWATCH_PING__INTERVAL", "3s"),
        ("STOREWATCH_PING__TIMEOUT", "2s"),
        ("STOREWATCH_NODE", "17"),
        ("STOREWATCH_STATE_FILE", ""),
        ("STOREWATCH_HUGEGRAPH__PD_PEERS", "[fd00::1]:1, b:2"),
        ("STOREWATCH_LISTEN__PROBE", "[::1]:1"),
        ("STOREWATCH_VERDICT__FAILURE_THRESHOLD", "5"),
        ("STOREWATCH_KUBERNETES__NAMESPACES", "[x, y]"),
        // None of these is ours: the client's, and what Kubernetes makes of a Service named storewatch.
        ("STOREWATCH_AGENT", "nonsense"),
        ("STOREWATCH_PORT", "tcp://10.0.0.1:9465"),
        ("STOREWATCH_PORT_9465_TCP_ADDR", "10.0.0.1"),
        ("STOREWATCH_SERVICE_HOST", "10.0.0.1"),
        ("STOREWATCH_METRICS_SERVICE_PORT", "1"),
    ];
    let sets = ["ping.interval=4s", "ping.interval=5s", "pods={source: none}", "listen.metrics=off"];
    let config = parse(SMALL, "x.yaml", &surroundings(&environment, &sets)).unwrap();
    assert_eq!(show_duration(config.ping.interval), "5s");
    assert_eq!(show_duration(config.ping.timeout), "2s");
    assert_eq!(&*config.node, "17");
    assert_eq!(config.state_file, None);
    assert_eq!(config.clusters[0].pd_peers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["[fd00::1]:1", "b:2"]);
    assert_eq!(config.listen.probe.to_string(), "[::1]:1");
    assert_eq!(config.listen.metrics, None);
    assert_eq!(config.verdict.failure_threshold, 5);
    assert_eq!(config.clusters[0].namespaces, ["x", "y"]);
    assert_eq!(config.pods.source, PodSource::None);
    // An empty file is completed by overrides alone.
    parse("", "x.yaml", &surroundings(&[("STOREWATCH_HUGEGRAPH__STORES", "s:1")], &[])).unwrap();
    let clusters = "clusters: [{name: a, stores: [\"s:1\"]}]\n";
    let config = parse(clusters, "x.yaml", &surroundings(&[], &["clusters.0.store_port=9"])).unwrap();
    assert_eq!(config.clusters[0].store_port, 9);
}

#[test]
fn wrong_overrides_are_named() {
    let rows = [
        (
            ("STOREWATCH_PING__INTERVAL", "5ms"),
            "environment STOREWATCH_PING__INTERVAL: ping.interval: \"5ms\": must be 200ms to 5m",
        ),
        (
            ("STOREWATCH_PING__INTERVALL", "1s"),
            "environment STOREWATCH_PING__INTERVALL: ping.intervall: unknown key; did you mean ping.interval?",
        ),
        (
            ("STOREWATCH_PING_INTERVAL", "1s"),
            "environment STOREWATCH_PING_INTERVAL: ping.interval: keys are joined by two underscores; did you mean \
             STOREWATCH_PING__INTERVAL?",
        ),
        (
            ("STOREWATCH_HUGEGRAPH__PD_PEERS", "a:1,"),
            "environment STOREWATCH_HUGEGRAPH__PD_PEERS: hugegraph.pd_peers[1]: \"\": is empty, as after a trailing comma; \
             write host:port",
        ),
        (
            ("STOREWATCH_NODE__NAME", "x"),
            "environment STOREWATCH_NODE__NAME: node.name: node is a value, not a section",
        ),
    ];
    let text = format!("node: n\n{SMALL}");
    for (variable, expected) in rows {
        assert_eq!(parse(&text, "x.yaml", &surroundings(&[variable], &[])).unwrap_err().to_string(), expected);
    }
    let rows = [
        ("ping.interval", "--set: ping.interval: must be KEY=VALUE, such as ping.interval=1s"),
        ("=1s", "--set: =1s: must be KEY=VALUE, such as ping.interval=1s"),
        ("ping..interval=1s", "--set: ping..interval: is no key"),
        ("log.level=loud", "--set: log.level: \"loud\": must be one of: error, warn, info, debug, trace"),
        ("hugegraph.pd_peers.3=a:1", "--set: hugegraph.pd_peers: has 1 entries, counted from 0; 3 is none of them"),
    ];
    for (set, expected) in rows {
        assert_eq!(parse(&text, "x.yaml", &surroundings(&[], &[set])).unwrap_err().to_string(), expected);
    }
}

#[test]
fn files_that_are_no_configuration_get_one_line() {
    let one_line = |text: &str| {
        let found = complaints(text);
        assert_eq!(found.lines().count(), 1, "{found}");
        found
    };
    assert!(one_line("a: [1\nb: 2\n").starts_with("x.yaml:"), "{}", one_line("a: [1\nb: 2\n"));
    assert!(one_line("- a\n- b\n").ends_with("must be a mapping of keys to values"));
    assert!(one_line("just text").contains("must be a mapping"));
    assert!(one_line("a: 1\n---\nb: 2\n").contains("not valid YAML"));
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    let started = std::time::Instant::now();
    assert!(one_line(&bomb).contains("not valid YAML"));
    assert!(started.elapsed() < std::time::Duration::from_secs(2));
    let deep = format!("a: {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(one_line(&deep).contains("not valid YAML"));
    assert!(one_line(&format!("{}: 1", "k".repeat(300))).contains("not valid YAML"));
}

#[test]
fn unreadable_files_get_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let load = |path: &std::path::Path| {
        load(path, &surroundings(&[], &[])).map(|_| ()).map_err(|mistakes| mistakes.to_string())
    };
    let path = folder.path().join("c.yaml");
    let place = path.display();
    assert_eq!(load(&path), Err(format!("{place}: no such file")));
    let expected = format!("{}: is a directory; a file is needed", folder.path().display());
    assert_eq!(load(folder.path()), Err(expected));
    std::fs::write(&path, "").unwrap();
    assert!(load(&path).unwrap_err().contains("the file is empty"), "{:?}", load(&path));
    std::fs::write(&path, b"node: a\nlog: \xff\n").unwrap();
    assert_eq!(load(&path), Err(format!("{place}: is not UTF-8 text (line 2)")));
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert_eq!(load(&path), Err(format!("{place}: is larger than 1024 KiB")));
    assert_eq!(load(std::path::Path::new("/dev/zero")), Err("/dev/zero: is not a regular file".to_owned()));
    std::fs::write(&path, SMALL).unwrap();
    assert_eq!(load(&path), Ok(()));
}

fn any_duration(min: u64, max: u64) -> impl Strategy<Value = std::time::Duration> {
    (min..=max).prop_map(std::time::Duration::from_millis)
}

prop_compose! {
    fn any_cluster()(
        name in "[a-zA-Z0-9._-]{0,10}",
        peers in prop::collection::btree_map("[a-z]{1,8}(\\.[a-z]{1,3}\\.[a-z]{2,5}\\.svc)?", 1u16.., 1..4),
        stores in prop::collection::btree_set(1u16.., 0..3),
        ports in (1u16..30_000, 30_000u16..),
        namespaces in prop::collection::btree_set("[a-z]{1,6}", 0..3),
        selector in prop::sample::select(vec!["", "a=b", "a!=b,c", "!x,y in (1,2)", "a notin (b,c)", "a="]),
    ) -> String {
        let peers: Vec<_> = peers.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let stores: Vec<_> = stores.iter().map(|port| format!("[fd00::{port:x}]:{port}")).collect();
        let namespaces: Vec<_> = namespaces.into_iter().collect();
        format!("{name}\", pd_peers: {peers:?}, stores: {stores:?}, store_port: {}, pd_port: {}, \
                 namespaces: {namespaces:?}, selector: {selector:?}", ports.0, ports.1)
    }
}

prop_compose! {
    fn any_config()(
        clusters in prop::collection::vec(any_cluster(), 1..4),
        interval in any_duration(200, 300_000),
        window in any_duration(300_000, 86_400_000),
        suspect in any_duration(1000, 100_000),
        confirm in any_duration(100_001, 86_400_000),
        words in (0usize..4, 0usize..3, 0usize..2, 0usize..5),
        node in "[!-~]{1,20}",
        file in "/[ -~]{0,19}[a-z]",
        numbers in (1u32..=1000, 0u32..=1000, any::<bool>()),
    ) -> String {
        let word = |at: usize, words: &[&str]| words[at % words.len()].to_owned();
        format!(
            "node: {node:?}\nclusters: [{}]\nping: {{interval: {}}}\nverdict: {{window: {}, stale_suspect_after: {}, \
             stale_confirm_after: {}, stale_transport: {}, failure_threshold: {}, min_other_ready: {}}}\n\
             pods: {{source: {}, file: {file:?}}}\nkernel: {{mode: {}}}\nlog: {{level: {}}}\nlisten: {{metrics: {:?}}}\n\
             state_file: {file:?}\n",
            named(&clusters), show_duration(interval), show_duration(window), show_duration(suspect),
            show_duration(confirm), word(words.2, &["not_ready", "degraded"]), numbers.0, numbers.1,
            word(words.0, &["kubernetes", "cri", "file", "none"]), word(words.1, &["auto", "required", "off"]),
            word(words.3, &["error", "warn", "info", "debug", "trace"]), if numbers.2 { "off" } else { "[::]:1" },
        )
    }
}

/// A list of clusters, each of whose names begins with its number so that they differ.
fn named(clusters: &[String]) -> String {
    let entries = clusters.iter().enumerate().map(|(index, cluster)| format!("{{name: \"{index}{cluster}}}"));
    entries.collect::<Vec<_>>().join(", ")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_effective_configuration_reads_back(text in any_config()) {
        let config = read(&text).unwrap();
        let printed = config.to_yaml();
        prop_assert_eq!(&read(&printed).unwrap(), &config, "{}", printed);
        prop_assert_eq!(read(&config.to_json().to_string()).unwrap(), config);
    }

    #[test]
    fn no_text_panics(text in "(?s).{0,300}") {
        let _ = read(&text);
    }

    #[test]
    fn no_yaml_shape_panics(
        key in prop::sample::select(keys::KEYS.to_vec()),
        value in prop::sample::select(vec!["", "~", "1", "-1", "1e400", "x", "[]", "[[]]", "{}", "{a: b}", "true", "!!binary x", "*a", "&a 1"]),
    ) {
        let text = match key.split_once('.') {
            Some((section, name)) => format!("{}: {{{name}: {value}}}\n", section.trim_end_matches("[]")),
            None => format!("{key}: {value}\n"),
        };
        let _ = read(&format!("{SMALL}{text}"));
    }

    #[test]
    fn durations_read_back(millis in 0u64..=366 * 86_400_000) {
        let duration = std::time::Duration::from_millis(millis);
        prop_assert_eq!(value::parse_duration(&show_duration(duration)), Ok(duration));
    }
}
