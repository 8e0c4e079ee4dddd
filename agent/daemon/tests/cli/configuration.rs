use crate::{Ended, folder_with, shown, storewatch};

const GOOD: &str = "hugegraph: {pd_peers: [\"127.0.0.1:8686\"]}\npods: {source: none}\n";

#[test]
fn a_good_configuration_is_printed_and_reads_back() {
    let (folder, path) = folder_with("c.yaml", GOOD);
    let first = storewatch(&["check-config", "--config", &path, "--set", "ping.interval=1s"], &[]);
    assert_eq!((first.code, first.err.as_str()), (Some(0), ""));
    assert!(first.out.starts_with("node: node-a\n"), "{}", first.out);
    assert!(first.out.contains("\n  interval: 1s\n"), "{}", first.out);
    let again = folder.path().join("again.yaml");
    std::fs::write(&again, &first.out).unwrap();
    let second = storewatch(&["check-config", "-c", &shown(&again)], &[("NODE_NAME", "another")]);
    assert_eq!(second, first);

    let json = storewatch(&["check-config", "-o", "json", "-c", &path], &[]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["hugegraph"]["pd_peers"][0], "127.0.0.1:8686");
}

#[test]
fn what_has_no_effect_is_told_and_no_mistake() {
    let text = "hugegraph: {stores: [\"s:1\"]}\nhealing: {mode: evict}\nkubernetes: {readiness_gate: on}\npods: {source: none}\n";
    let (_folder, path) = folder_with("c.yaml", text);
    let ended = storewatch(&["check-config", "--config", &path], &[]);
    assert_eq!(ended.code, Some(0));
    let notes: Vec<_> = ended.out.lines().take(2).collect();
    let expected = [
        "# kubernetes.readiness_gate: on has no effect without pods.source: kubernetes",
        "# healing.mode other than off has no effect without pods.source: kubernetes",
    ];
    assert_eq!(notes, expected);

    let sets = ["--set", "pods.source=file", "--set", "pods.file=/nowhere/pods.yaml"];
    let ended = storewatch(&[&["check-config", "--config", &path][..], &sets].concat(), &[]);
    let notes: Vec<_> = ended.out.lines().take(3).collect();
    let missing = "# pods.file: /nowhere/pods.yaml is not there; until it is, no pod is judged";
    assert_eq!(notes, [missing, expected[0], expected[1]]);
}

#[test]
fn mistakes_of_the_pod_list_are_mistakes_and_a_missing_list_is_none() {
    let (folder, path) = folder_with("c.yaml", "hugegraph: {stores: [\"s:1\"]}\npods: {source: file}\n");
    let pods = folder.path().join("pods.yaml");
    let check = |output: &str| {
        let set = format!("pods.file={}", shown(&pods));
        storewatch(&["check-config", "--config", &path, "-o", output, "--set", &set], &[])
    };
    assert_eq!(check("table").code, Some(0), "it may come later");
    std::fs::create_dir(&pods).unwrap();
    let ended = check("table");
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.starts_with(&format!("{}: ", shown(&pods))), "{}", ended.err);
    std::fs::remove_dir(&pods).unwrap();
    std::fs::write(&pods, "- {namespace: a, name: b, uid: c, pid: 1, color: red}\n").unwrap();
    let ended = check("table");
    assert_eq!((ended.code, &*ended.out), (Some(2), ""));
    assert!(ended.err.starts_with(&format!("{}:1: [0].color: unknown key", shown(&pods))), "{}", ended.err);
    let ended = check("json");
    assert_eq!(ended.code, Some(2));
    let answer: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(answer["mistakes"][0]["key"], "pods.file", "{answer}");
}

#[test]
fn every_mistake_is_told_with_exit_code_2() {
    let text = "hugegraph: {pd_peers: [\"http://pd:1\"]}\nping: {interval: 1}\nlogg: {}\n";
    let (_folder, path) = folder_with("c.yaml", text);
    let expected = format!(
        "{path}:1: hugegraph.pd_peers[0]: \"http://pd:1\": must be host:port without http://\n\
         {path}:2: ping.interval: 1: has no unit; write a whole number and a unit (ms, s, m, h), such as 2s\n\
         {path}:3: logg: unknown key; did you mean log?\n\
         environment STOREWATCH_LOG__LEVEL: log.level: \"loud\": must be one of: error, warn, info, debug, trace\n\
         storewatch: 4 mistakes in the configuration\n"
    );
    let environment = [("STOREWATCH_LOG__LEVEL", "loud")];
    for command in ["check-config", "run"] {
        let ended = storewatch(&[command, "--config", &path], &environment);
        assert_eq!(ended, Ended { code: Some(2), out: String::new(), err: expected.clone() }, "{command}");
    }
    let json = storewatch(&["check-config", "-o", "json", "--config", &path], &environment);
    assert_eq!(json.code, Some(2));
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["mistakes"][1]["key"], "ping.interval");
    assert_eq!(json["mistakes"].as_array().unwrap().len(), 4);
}

#[test]
fn a_file_that_cannot_be_read_is_one_line() {
    let ended = storewatch(&["check-config", "--config", "/nowhere/c.yaml"], &[]);
    assert_eq!(ended, Ended { code: Some(2), out: String::new(), err: "/nowhere/c.yaml: no such file\n".to_owned() });
    let ended = storewatch(&["run", "--config", "/"], &[]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(2), "/: is a directory; a file is needed\n"));
}
