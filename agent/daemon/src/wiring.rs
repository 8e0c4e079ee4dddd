//! Whether anything acts on the verdicts: how pods are wired to the agents, in words. Pure.

/// Pods that are named.
const NAMED: usize = 5;

/// How one pod is wired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wired {
    /// Its readiness probe asks an agent.
    pub(crate) probe: bool,
    /// Its liveness probe does, which none should.
    pub(crate) liveness: bool,
    /// It declares the readiness gate.
    pub(crate) gate: bool,
    /// The gate's condition was written.
    pub(crate) written: bool,
    /// It has been taken out of judgement.
    pub(crate) maintenance: bool,
}

/// What there is to say about the wiring.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// In one line; `None` where no pod is known.
    pub(crate) sum: Option<String>,
    /// What somebody should look at, a sentence each.
    pub(crate) remarks: Vec<String>,
}

/// Which pods a remark is about.
type Test = fn(Wired) -> bool;

/// About these pods, each with its name.
pub(crate) fn words(pods: &[(String, Wired)]) -> Words {
    if pods.is_empty() {
        return Words::default();
    }
    let count = |test: Test| pods.iter().filter(|(_, wired)| test(*wired)).count();
    let sum = format!(
        "{} of {} pods: {} by the readiness gate, {} by a probe",
        count(|wired| wired.gate || wired.probe),
        pods.len(),
        count(|wired| wired.gate),
        count(|wired| wired.probe)
    );
    let rows: [(Test, &str, &str); 4] = [
        (
            |wired| !wired.gate && !wired.probe,
            "nothing acts on the verdict of ",
            ": no readiness gate, and no probe asks storewatch",
        ),
        (
            |wired| wired.gate && !wired.written,
            "nobody has written the gate of ",
            ", so it is shut: is kubernetes.readiness_gate on?",
        ),
        (
            |wired| wired.liveness,
            "the liveness probe asks storewatch in ",
            ": a restart brings no Store back; make it a readiness probe",
        ),
        (|wired| wired.maintenance, "out of judgement by annotation storewatch.io/maintenance: ", ""),
    ];
    let remark = |(test, front, back): (Test, &str, &str)| {
        let names = pods.iter().filter(|(_, wired)| test(*wired)).map(|(name, _)| name.clone());
        let names: Vec<_> = names.collect();
        (!names.is_empty()).then(|| format!("{front}{}{back}", some(names)))
    };
    Words { sum: Some(sum), remarks: rows.into_iter().filter_map(remark).collect() }
}

/// The first names, and how many more.
pub(crate) fn some(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let names = names.join(", ");
    if more > 0 { format!("{names} and {more} more") } else { names }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_wired_is_named() {
        let none = Wired::default();
        let gate = Wired { gate: true, written: true, ..none };
        let probe = Wired { probe: true, ..none };
        let of = |name: &str, wired| (format!("graph/{name}"), wired);
        let well = words(&[of("a", gate), of("b", probe)]);
        assert_eq!(well.sum.as_deref(), Some("2 of 2 pods: 1 by the readiness gate, 1 by a probe"));
        assert_eq!(well.remarks, Vec::<String>::new());
        assert_eq!(words(&[]), Words::default());
        let mut ill: Vec<_> = (0..7).map(|number| of(&format!("p{number}"), none)).collect();
        ill.push(of("shut", Wired { written: false, ..gate }));
        ill.push(of("live", Wired { liveness: true, ..probe }));
        ill.push(of("out", Wired { maintenance: true, ..probe }));
        let said = words(&ill);
        assert_eq!(said.sum.as_deref(), Some("3 of 10 pods: 1 by the readiness gate, 2 by a probe"));
        assert_eq!(
            said.remarks,
            [
                "nothing acts on the verdict of graph/p0, graph/p1, graph/p2, graph/p3, graph/p4 and 2 more: no readiness gate, \
             and no probe asks storewatch",
                "nobody has written the gate of graph/shut, so it is shut: is kubernetes.readiness_gate on?",
                "the liveness probe asks storewatch in graph/live: a restart brings no Store back; make it a readiness probe",
                "out of judgement by annotation storewatch.io/maintenance: graph/out",
            ]
        );
    }
}
