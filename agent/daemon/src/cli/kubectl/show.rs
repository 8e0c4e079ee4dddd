//! The tables about all nodes.

use super::merge::{Fleet, StoreSeen, Told, nodes};
use crate::{
    cli::{
        list::{findings, several, since, tone},
        table::{Cell, Style, Tone, clean, human_ms, table},
        wire::{self, Pd, Pod, Snapshot, Wiring},
    },
    wiring,
};
use jiff::Timestamp;

/// Each node's state, under what all of them say together.
pub(super) fn status(fleet: &Fleet, style: Style) -> String {
    let all = fleet.nodes();
    let count = |status: &str| fleet.answers().filter(|(_, snapshot)| snapshot.readiness.status == status).count();
    let silent = all.len() - fleet.answers().count();
    let parts = [
        (count("Ready"), "Ready"),
        (count("NotReady"), "NotReady"),
        (count("Unknown"), "Unknown"),
        (silent, "without an answer"),
    ];
    let parts: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let mut text = format!("{}: {}\n\n", style.paint(&nodes(all.len()), Tone::Heading), parts.join(", "));
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<10} {}\n", clean(value)));
    let ready = fleet.pods().filter(|(_, pod)| pod.ready).count();
    let unknown = fleet.pods().filter(|(_, pod)| pod.status == "Unknown").count();
    let doubt = if unknown > 0 { format!(", {unknown} Unknown") } else { String::new() };
    line("Pods", &format!("{ready} of {} ready{doubt}", fleet.pods().count()));
    for (index, words) in fleet.store_words().iter().enumerate() {
        line(if index == 0 { "Stores" } else { "" }, words);
    }
    let wired = wiring::words(&wire::wired(fleet.pods().map(|(_, pod)| pod)));
    if let Some(sum) = &wired.sum {
        line("Wiring", sum);
        wired.remarks.iter().for_each(|remark| line("", remark));
    }
    text.push('\n');
    let headings = ["NODE", "STATUS", "REASON", "FOR", "PODS", "STORES", "PD", "FINDINGS", "DETAIL"];
    text.push_str(&table(&headings, all.iter().map(row).collect(), style));
    text
}

fn row(told: &Told<Snapshot>) -> Vec<Cell> {
    let node = Cell::from(told.node.as_str());
    let snapshot = match &told.said {
        Ok(snapshot) => snapshot,
        Err(words) => {
            let mut row = vec![node, Cell::new("no answer", Tone::Bad)];
            row.extend((0..6).map(|_| Cell::from("")));
            row.push(Cell::from(words.as_str()));
            return row;
        }
    };
    let readiness = &snapshot.readiness;
    let ready = snapshot.pods.iter().filter(|pod| pod.ready).count();
    let answering = snapshot.stores.iter().filter(|store| store.answering == Some(true)).count();
    let away = snapshot.sources.iter().filter(|source| source.state != "active");
    let away: Vec<_> = away.map(|source| format!("{} {}: {}", source.name, source.state, source.detail)).collect();
    vec![
        node,
        Cell::new(readiness.status.as_str(), tone(&readiness.status)),
        Cell::from(readiness.reason.as_str()),
        Cell::from(readiness.since_ms.map(human_ms).unwrap_or_default()),
        Cell::from(format!("{ready}/{}", snapshot.pods.len())),
        Cell::from(format!("{answering}/{}", snapshot.stores.len())),
        Cell::from(pd(&snapshot.pd)),
        Cell::from(readiness.findings.join(",")),
        Cell::from(away.join("; ")),
    ]
}

fn pd(pd: &Pd) -> &'static str {
    match (pd.reachable, pd.has_leader) {
        (Some(false), _) => "away",
        (Some(true), Some(false)) => "no list",
        (Some(true), _) => "ok",
        (None, _) => "",
    }
}

/// All judged pods.
pub(super) fn pods(fleet: &Fleet, style: Style) -> String {
    let clusters = several(fleet.pods().map(|(_, pod)| pod.cluster.as_deref()));
    let mut headings = vec!["NODE", "NAMESPACE", "POD", "STATUS", "REASON", "SINCE", "WIRED", "FINDINGS", "WORKLOAD"];
    if clusters {
        headings.push("CLUSTER");
    }
    let now = Timestamp::now();
    let mut all: Vec<(&str, &Pod)> = fleet.pods().collect();
    all.sort_by(|(_, one), (_, other)| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    let rows = all.into_iter().map(|(node, pod)| {
        let mut row = vec![
            Cell::from(node),
            Cell::from(pod.namespace.as_str()),
            Cell::from(pod.name.as_str()),
            Cell::new(pod.status.as_str(), tone(&pod.status)),
            Cell::from(pod.reason.as_str()),
            Cell::from(since(pod.since.as_deref(), now)),
            wired(pod.wiring.as_ref()),
            Cell::from(findings(&pod.findings)),
            Cell::from(pod.workload.as_deref().unwrap_or_default()),
        ];
        if clusters {
            row.push(Cell::from(pod.cluster.as_deref().unwrap_or_default()));
        }
        row
    });
    let rows: Vec<_> = rows.collect();
    let text = if rows.is_empty() {
        format!("No pod is watched on {}.\n", nodes(fleet.answers().count()))
    } else {
        table(&headings, rows, style)
    };
    with_silent(text, fleet)
}

fn wired(wiring: Option<&Wiring>) -> Cell {
    let Some(wiring) = wiring else { return Cell::from("") };
    match (wiring.maintenance, wiring.gate, wiring.probe) {
        (true, ..) => Cell::new("maintenance", Tone::Doubtful),
        (_, true, true) => Cell::from("gate,probe"),
        (_, true, _) => Cell::from("gate"),
        (_, _, true) => Cell::from("probe"),
        (..) => Cell::new("no", Tone::Doubtful),
    }
}

/// All Stores, and who reaches them.
pub(super) fn stores(fleet: &Fleet, style: Style) -> String {
    let all = fleet.stores();
    let clusters = several(all.iter().map(|store| store.cluster.as_deref()));
    let mut headings = vec!["STORE", "NAME", "ADDRESS", "PD SAYS", "REACHED BY", "SLOWEST", "FINDINGS"];
    if clusters {
        headings.push("CLUSTER");
    }
    let joined = |texts: &std::collections::BTreeSet<String>| texts.iter().cloned().collect::<Vec<_>>().join(",");
    let rows = all.iter().map(|store| {
        let tone = match (store.is_well(), store.reached_by.is_empty()) {
            (true, _) => Tone::Good,
            (false, false) => Tone::Doubtful,
            (false, true) => Tone::Bad,
        };
        let mut row = vec![
            Cell::from(store.label.as_str()),
            Cell::from(store.name.as_str()),
            Cell::from(joined(&store.addresses)),
            Cell::from(joined(&store.reported_states)),
            Cell::new(store.reach(), tone),
            Cell::from(store.slowest_ms.map(|took| format!("{took:.1}ms")).unwrap_or_default()),
            Cell::from(joined(&store.findings)),
        ];
        if clusters {
            row.push(Cell::from(store.cluster.as_deref().unwrap_or_default()));
        }
        row
    });
    let mut text =
        if all.is_empty() { "No Store is known.\n".to_owned() } else { table(&headings, rows.collect(), style) };
    let unwell: Vec<_> = all.iter().filter(|store| !store.is_well()).map(StoreSeen::words).collect();
    if !unwell.is_empty() {
        text.push_str(&format!("\n{}\n", unwell.join("\n")));
    }
    with_silent(text, fleet)
}

/// Under an answer, whose part in it is missing.
pub(super) fn with_silent(mut text: String, fleet: &Fleet) -> String {
    if let Some(words) = fleet.silent_words() {
        text.push_str(&format!("\n{}\n", clean(&words)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{
        super::merge::tests::{dead, node},
        *,
    };

    const PLAIN: Style = Style { colours: false };

    fn fleet() -> Fleet {
        Fleet::of(vec![
            node("node-a", &["server-0 Ready"], &["1 serving", "2 serving"]),
            node("node-b", &["server-1 NotReady", "server-2 Unknown"], &["1 serving", "2 refused"]),
            dead("node-c"),
        ])
    }

    #[test]
    fn the_whole_cluster_on_one_page() {
        let text = status(&fleet(), PLAIN);
        let expected = "\
3 nodes: 2 Ready, 1 without an answer

Pods       2 of 3 ready, 1 Unknown
Stores     1 of 2 nodes cannot reach store-2: node-b (refused)
Wiring     3 of 3 pods: 3 by the readiness gate, 0 by a probe

NODE     STATUS      REASON           FOR     PODS   STORES   PD   FINDINGS   DETAIL
node-a   Ready       StoreAnswering   1m32s   1/1    2/2      ok   -          -
node-b   Ready       StoreAnswering   1m32s   1/2    1/2      ok   -          -
node-c   no answer   -                -       -      -        -    -          no answer within 10s
";
        assert_eq!(text, expected);
    }

    #[test]
    fn pods_and_stores_of_all_nodes() {
        let text = pods(&fleet(), PLAIN);
        let rows: Vec<_> =
            text.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            rows,
            [
                "NODE NAMESPACE POD STATUS",
                "node-a graph server-0 Ready",
                "node-b graph server-1 NotReady",
                "node-b graph server-2 Unknown",
                "",
                "no answer from 1",
            ]
        );
        let expected = "\
STORE   NAME      ADDRESS   PD SAYS   REACHED BY   SLOWEST   FINDINGS
1       store-1   a:8500    -         2 of 2       2.5ms     -
2       store-2   a:8500    -         1 of 2       2.5ms     -

1 of 2 nodes cannot reach store-2: node-b (refused)

no answer from 1 of 3 nodes: node-c (no answer within 10s)
";
        assert_eq!(stores(&fleet(), PLAIN), expected);
        assert_eq!(pods(&Fleet::of(vec![node("a", &[], &[])]), PLAIN), "No pod is watched on 1 node.\n");
    }
}
