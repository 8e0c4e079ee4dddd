//! Where the pods come from, whether they are found in the kernel, and whether anything acts on their verdicts.

use super::{Check, kubernetes::Listed};
use crate::{
    config::{Config, PodSource},
    source::pods::{Survey, survey, survey_listed, survey_runtime},
    wiring::{Wired, some, words},
};

const LOST: &str = "verdicts on single pods: only the node is judged";
const UNPLACED: &str = "the kernel's evidence about those pods: they are judged by the node's pings alone";
const UNWIRED: &str = "what the verdicts are for: a Service goes on sending to a pod that does not reach its storage";

/// `listed`: what the API server gave, where it is the source.
pub(super) async fn checks(config: &Config, given: bool, listed: Option<Listed>) -> anyhow::Result<Vec<Check>> {
    const NAME: &str = "pods";
    let file = config.pods.file.display();
    Ok(match config.pods.source {
        _ if !given => {
            vec![Check::degraded(NAME, "no configuration is given", LOST, "storewatch doctor --config FILE")]
        }
        PodSource::None => {
            vec![Check::degraded(NAME, "switched off by pods.source: none", LOST, "pods.source: file")]
        }
        PodSource::Kubernetes => match listed {
            None => vec![Check::missing(NAME, "the API server gives no list", LOST, "see the lines about kubernetes")],
            Some(listed) => {
                let wiring = wiring(config, &listed);
                let survey = tokio::task::spawn_blocking(move || survey_listed(&listed)).await?;
                vec![placed(&survey, "on this node"), wiring]
            }
        },
        PodSource::Cri => match survey_runtime(config).await? {
            Ok(survey) => {
                let way = match survey.news {
                    None => "asked each second",
                    Some(true) => "asked each second and at its events",
                    Some(false) => "asked each second, it serves no events",
                };
                vec![
                    placed(&survey, &format!("on this node by {} ({way})", config.pods.cri_socket.display())),
                    unknown(),
                ]
            }
            Err(words) => {
                let how = "the container runtime's socket in pods.cri_socket, mounted into the agent's container";
                vec![Check::missing(NAME, words, LOST, how)]
            }
        },
        PodSource::File => vec![match survey(config) {
            Ok((pods, problems)) if problems.is_empty() => Check::ok(NAME, format!("{pods} in {file}, all found")),
            Ok((pods, problems)) => Check::degraded(
                NAME,
                format!("{pods} in {file}: {}", problems.join("; ")),
                UNPLACED,
                "correct the place of each in the file; the agent looks again every second",
            ),
            Err(reason) => {
                Check::missing(NAME, reason, LOST, "write the list; the agent takes it as soon as it is there")
            }
        }],
    })
}

fn placed(survey: &Survey, place: &str) -> Check {
    let Survey { pods, unplaced, news: _ } = survey;
    if unplaced.is_empty() {
        return Check::ok("pods", format!("{pods} {place}, all that run are found in the kernel"));
    }
    let found = format!("{pods} {place}; not found in the kernel: {}", some(unplaced.clone()));
    Check::degraded("pods", found, UNPLACED, "the host's cgroup v2 hierarchy, mounted here at /sys/fs/cgroup")
}

fn unknown() -> Check {
    Check::degraded(
        "wiring",
        "not known: a container runtime knows no gates and no probes",
        "whether anything acts on the verdicts",
        "pods.source: kubernetes, or kubectl describe pod",
    )
}

/// Whether anything acts on the verdicts, and what acts wrongly.
fn wiring(config: &Config, listed: &Listed) -> Check {
    const NAME: &str = "wiring";
    const HOW: &str = "the readiness gate or a readiness probe in the Servers' pods (deploy/hugegraph has the lines)";
    let wired = listed.iter().filter_map(|(_, seen)| {
        let wiring = seen.wiring.as_ref()?;
        let wired = Wired {
            probe: wiring.probe,
            liveness: wiring.liveness,
            gate: wiring.gate,
            // While this configuration keeps gates, an unwritten one is a matter of moments.
            written: wiring.condition.is_some() || config.kubernetes.readiness_gate,
            maintenance: wiring.maintenance,
        };
        Some((seen.pod.to_string(), wired))
    });
    let said = words(&wired.collect::<Vec<_>>());
    match said.sum {
        None => Check::ok(NAME, "no selected pod is on this node"),
        Some(sum) if said.remarks.is_empty() => Check::ok(NAME, sum),
        Some(sum) => Check::degraded(NAME, format!("{sum}; {}", said.remarks.join("; ")), UNWIRED, HOW),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{State, tests::config},
        *,
    };
    use crate::kubernetes::manifest;
    use std::sync::Arc;
    use storewatch_core::id::ClusterId;

    fn listed(specs: &[&str]) -> Listed {
        let of = |(number, spec): (usize, &&str)| {
            let text = format!(
                r#"{{"metadata":{{"namespace":"graph","name":"server-{number}","uid":"u{number}"}},"spec":{spec}}}"#
            );
            (ClusterId(0), Arc::new(manifest::read(serde_json::from_str(&text).unwrap()).unwrap()))
        };
        specs.iter().enumerate().map(of).collect()
    }

    #[test]
    fn whether_anything_acts_on_the_verdicts() {
        let gate = r#"{"readinessGates":[{"conditionType":"storewatch.io/storage-reachable"}]}"#;
        let probe = r#"{"containers":[{"name":"c","readinessProbe":{"httpGet":{"path":"/readiness/self"}}}]}"#;
        let keeps = config("kubernetes: {readiness_gate: 'on'}\n");
        assert_eq!(wiring(&keeps, &listed(&[])).found, "no selected pod is on this node");
        let check = wiring(&keeps, &listed(&[gate, probe]));
        assert_eq!((check.state, &*check.found), (State::Ok, "2 of 2 pods: 1 by the readiness gate, 1 by a probe"));
        let check = wiring(&keeps, &listed(&[gate, "{}"]));
        assert!(
            check.state == State::Degraded && check.found.contains("nothing acts on the verdict of graph/server-1"),
            "{check:?}"
        );
        let check = wiring(&config(""), &listed(&[gate]));
        assert!(
            check.state == State::Degraded && check.found.contains("nobody has written the gate of graph/server-0"),
            "{check:?}"
        );
    }

    #[tokio::test]
    async fn a_runtime_that_is_not_there_is_told() {
        let mut config = config("");
        config.pods.source = PodSource::Cri;
        config.pods.cri_socket = "/nonexistent/cri.sock".into();
        let checks = checks(&config, true, None).await.unwrap();
        assert_eq!((checks.len(), checks[0].state), (1, State::Missing));
        assert!(checks[0].found.contains("the container runtime does not answer"), "{checks:?}");
    }
}
