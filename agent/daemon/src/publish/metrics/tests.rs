use super::*;
use crate::publish::testing::{Answer, FIRST_STORE, cluster, finding, published, send, snapshot, target, verdict};
use axum::body::Body;
use http::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storewatch_core::{
    attribution::Unattributed,
    id::TargetKey,
    snapshot::Snapshot,
    verdict::{FindingCode, Reason},
};

const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

async fn scrape(snapshot: Snapshot, accept: Option<&str>) -> Answer {
    scrape_with(snapshot, accept, Box::new(|| None)).await
}

async fn scrape_with(snapshot: Snapshot, accept: Option<&str>, programs: Box<ProgramSeconds>) -> Answer {
    let listeners = vec![("listen.probe", Arc::new(Counters::default()))];
    let router = router(published(snapshot).1, listeners, programs);
    let mut request = Request::get("/metrics");
    if let Some(accept) = accept {
        request = request.header(header::ACCEPT, accept);
    }
    let answer = send(&router, request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK);
    answer
}

async fn plain(snapshot: Snapshot) -> String {
    scrape(snapshot, None).await.text
}

fn has(text: &str, line: &str) -> bool {
    text.lines().any(|candidate| candidate == line)
}

#[tokio::test]
async fn every_family_has_its_name_type_and_labels() {
    let mut snapshot = snapshot();
    snapshot.pods[0].findings = [FindingCode::PdDown, FindingCode::PdDown].map(finding).to_vec();
    snapshot.unattributed = vec![(Unattributed::Stranger, 3)];
    let text = plain(snapshot).await;
    let store = format!("store=\"{FIRST_STORE}\"");
    let pod = "namespace=\"graph\",pod=\"server-0\"";
    let to = format!("{pod},target=\"{FIRST_STORE}\"");
    for (name, kind, series) in [
        ("pod_ready", "gauge", format!("{{{pod}}} 1.0")),
        ("pod_verdict", "gauge", format!("{{{pod},status=\"Ready\",reason=\"StoreAnswering\"}} 1.0")),
        ("pod_finding", "gauge", format!("{{{pod},finding=\"PdDown\"}} 1.0")),
        ("verdict_transitions_total", "counter", format!("{{{pod},reason=\"StoreAnswering\"}} 1")),
        ("connects_total", "counter", format!("{{{to},outcome=\"refused\"}} 2")),
        ("connection_endings_total", "counter", format!("{{{to},outcome=\"peer_closed\"}} 1")),
        ("resets_total", "counter", format!("{{{to},direction=\"received\"}} 4")),
        ("retransmits_total", "counter", format!("{{{to}}} 5")),
        ("connections", "gauge", format!("{{{to},owner=\"previous\"}} 1.0")),
        ("store_up", "gauge", format!("{{{store}}} 1.0")),
        ("store_pings_total", "counter", format!("{{{store},outcome=\"serving\"}} 12")),
        ("pd_up", "gauge", "{peer=\"0\"} 1.0".to_owned()),
        ("pd_has_leader", "gauge", " 1.0".to_owned()),
        ("kernel_events_total", "counter", "{kind=\"state\"} 7".to_owned()),
        ("kernel_events_lost_total", "counter", " 0".to_owned()),
        ("kernel_unattributed_total", "counter", " 0".to_owned()),
        ("kernel_unattributed_reasons_total", "counter", "{reason=\"stranger\"} 3".to_owned()),
        ("dropped_total", "counter", "{what=\"evidence\"} 0".to_owned()),
        ("source_up", "gauge", "{source=\"kernel\"} 0.0".to_owned()),
        ("snapshot_age_seconds", "gauge", " 2.0".to_owned()),
    ] {
        assert!(has(&text, &format!("# TYPE storewatch_{name} {kind}")), "{name} in\n{text}");
        assert!(text.contains(&format!("# HELP storewatch_{name} ")), "{name} in\n{text}");
        assert!(has(&text, &format!("storewatch_{name}{series}")), "{name}{series} in\n{text}");
    }
    assert!(has(&text, "# TYPE storewatch_build_info gauge"), "{text}");
    assert!(text.contains("storewatch_build_info{version=\""), "{text}");
}

#[tokio::test]
async fn what_programs_cost_is_told_while_the_kernel_measures_it() {
    let programs = || Some(vec![("tcp_retransmit_skb".to_owned(), Duration::from_millis(1500))]);
    let text = scrape_with(snapshot(), None, Box::new(programs)).await.text;
    assert!(has(&text, "# TYPE storewatch_kernel_program_seconds_total counter"), "{text}");
    assert!(has(&text, "storewatch_kernel_program_seconds_total{program=\"tcp_retransmit_skb\"} 1.5"), "{text}");
    assert!(!plain(snapshot()).await.contains("storewatch_kernel_program"));
}

#[tokio::test]
async fn histograms_add_up_over_pods() {
    let text = plain(snapshot()).await;
    assert!(has(&text, "# TYPE storewatch_connect_duration_seconds histogram"), "{text}");
    let name = format!("storewatch_connect_duration_seconds_{{}}target=\"{FIRST_STORE}\"}}");
    let series = |suffix: &str| name.replace("{}", suffix);
    assert!(has(&text, &format!("{} 2", series("count{"))), "{text}");
    assert!(has(&text, &format!("{} 0", series("bucket{le=\"0.001\","))), "{text}");
    assert!(has(&text, &format!("{} 2", series("bucket{le=\"0.005\","))), "{text}");
    assert!(has(&text, &format!("{} 2", series("bucket{le=\"+Inf\","))), "{text}");
    let phases = text.lines().filter(|line| {
        line.starts_with("storewatch_store_ping_duration_seconds_count") && line.contains(&FIRST_STORE.to_string())
    });
    let phases: Vec<_> = phases.collect();
    assert_eq!(phases.len(), 2, "a phase that never happened has no series: {phases:?}");
    assert!(phases[0].contains("phase=\"connect\"") && phases[1].contains("phase=\"rpc\""), "{phases:?}");
}

#[tokio::test]
async fn what_did_not_happen_and_is_not_known_has_no_series() {
    let mut snapshot = snapshot();
    snapshot.clusters[0].stores[0].answering = None;
    snapshot.clusters[0].pd.has_leader = None;
    let text = plain(snapshot).await;
    assert!(!text.contains(&format!("storewatch_store_up{{store=\"{FIRST_STORE}\"}}")));
    assert!(!text.contains("storewatch_pd_has_leader"));
    assert!(!text.contains("direction=\"sent\""));
    assert!(!text.contains("outcome=\"refused\"} 0"));
}

#[tokio::test]
async fn the_cluster_label_is_there_with_several_clusters_only() {
    let about_clusters = |line: &&str| {
        let of = ["pod_", "verdict_", "conn", "resets", "retransmits", "store_", "pd_"];
        of.iter().any(|family| line.strip_prefix("storewatch_").is_some_and(|name| name.starts_with(family)))
    };
    let one = plain(snapshot()).await;
    assert!(!one.contains("cluster="));
    let mut snapshot = snapshot();
    snapshot.clusters.push(cluster(1, "prod"));
    let two = plain(snapshot).await;
    assert!(two.lines().filter(about_clusters).count() > 20);
    for line in two.lines().filter(|line| !line.starts_with('#')) {
        assert_eq!(line.contains("cluster=\""), about_clusters(&line), "{line}");
    }
    assert!(has(&two, "storewatch_pd_has_leader{cluster=\"prod\"} 1.0"), "{two}");
}

#[tokio::test]
async fn no_series_stands_twice_and_no_host_is_a_label() {
    let mut snapshot = snapshot();
    // Both peers share the label `pd`.
    snapshot.pods[0].targets = vec![target(Some(TargetKey::Pd(0))), target(Some(TargetKey::Pd(1)))];
    snapshot.pods[1].verdict = verdict(Reason::NoStoreAnswers);
    let text = plain(snapshot).await;
    let series = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0);
    let mut seen = BTreeSet::new();
    for series in series {
        assert!(seen.insert(series), "{series} twice");
    }
    let refused = "storewatch_connects_total{namespace=\"graph\",pod=\"server-0\",target=\"pd\",outcome=\"refused\"} 4";
    assert!(has(&text, refused), "{text}");
    assert!(!text.contains("hugegraph-") && !text.contains("10.2") && !text.contains("node-a"), "{text}");
}

#[tokio::test]
async fn label_values_are_escaped() {
    let mut snapshot = snapshot();
    Arc::make_mut(&mut snapshot.pods[0].record).pod.name = "a\"b\\c\nd".into();
    let text = plain(snapshot).await;
    assert!(has(&text, r#"storewatch_pod_ready{namespace="graph",pod="a\"b\\c\nd"} 1.0"#), "{text}");
}

#[tokio::test]
async fn the_format_is_the_one_that_was_asked_for() {
    let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
        application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,\
        */*;q=0.2";
    for (accept, format) in [
        (None, PLAIN),
        (Some("*/*"), PLAIN),
        (Some("text/plain"), PLAIN),
        (Some("text/html"), PLAIN),
        (Some(""), PLAIN),
        (Some("application/openmetrics-text;q=0"), PLAIN),
        (Some("application/openmetrics-text;q=0.1,text/plain;q=0.5"), PLAIN),
        (Some("application/openmetrics-text;q=nonsense"), PLAIN),
        (Some("application/openmetrics-text"), OPEN),
        (Some("APPLICATION/OpenMetrics-Text; version=1.0.0"), OPEN),
        (Some(prometheus), OPEN),
    ] {
        let answer = scrape(snapshot(), accept).await;
        assert_eq!(answer.headers[header::CONTENT_TYPE], format, "{accept:?}");
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
        assert_eq!(answer.text.ends_with("# EOF\n"), format == OPEN, "{accept:?}");
    }
}

/// What a parser of either format relies on: types before samples, each family in one piece, suffixes as the type has them.
#[tokio::test]
async fn both_formats_are_well_formed() {
    for (accept, counter) in [(None, "_total"), (Some("application/openmetrics-text"), "")] {
        let text = scrape(snapshot(), accept).await.text;
        let mut types = BTreeMap::new();
        let mut current = None;
        for line in text.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} is declared twice");
                current = Some((name.to_owned(), kind.to_owned()));
            } else if !line.starts_with('#') {
                let (name, kind) = current.clone().expect("a type before the first sample");
                let sample = line.split(['{', ' ']).next().unwrap();
                let suffixes: &[&str] = match kind.as_str() {
                    "counter" if counter.is_empty() => &["_total"],
                    "histogram" => &["_sum", "_count", "_bucket"],
                    "info" => &["_info"],
                    _ => &[""],
                };
                assert!(
                    suffixes.iter().any(|suffix| sample == format!("{name}{suffix}")),
                    "{line} under {name} {kind}"
                );
                line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
            }
        }
        assert_eq!(
            types.iter().filter(|(name, kind)| *kind == "counter" && name.ends_with("_total")).count() > 0,
            !counter.is_empty()
        );
        assert_eq!(text.lines().any(|line| line.starts_with("# UNIT")), counter.is_empty());
    }
}

#[tokio::test]
async fn other_paths_and_queries_are_refused() {
    let router = router(published(snapshot()).1, Vec::new(), Box::new(|| None));
    for (path, status) in [
        ("/", StatusCode::NOT_FOUND),
        ("/metrics/", StatusCode::NOT_FOUND),
        ("/v1/snapshot", StatusCode::NOT_FOUND),
        ("/metrics?name[]=a", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(crate::publish::testing::get(&router, path).await.status, status, "{path}");
    }
}
