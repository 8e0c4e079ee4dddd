//! The confusion matrix over all situations.

use crate::labels::{Fault, Judged};
use std::{collections::BTreeMap, fmt::Write as _};

/// What all situations came to.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    situations: u64,
    labelled: u64,
    verdicts: BTreeMap<(String, String), u64>,
    findings: BTreeMap<String, Findings>,
    faults: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Findings {
    labelled: u64,
    told: u64,
    missing: u64,
    forbidden: u64,
}

impl Matrix {
    /// Adds one situation.
    pub fn add(&mut self, judged: &Judged) {
        self.situations += 1;
        for pair in &judged.verdicts {
            *self.verdicts.entry(pair.clone()).or_default() += 1;
            self.labelled += u64::from(pair.0 == pair.1);
        }
        for (code, (labelled, told)) in &judged.findings {
            let findings = self.findings.entry((*code).to_owned()).or_default();
            findings.labelled += labelled;
            findings.told += told;
        }
        for (fault, _) in &judged.faults {
            let name = match fault {
                Fault::FalseNotReady => "false NotReady",
                Fault::Missed => "missed",
                Fault::WrongReason => "wrong reason",
                Fault::Missing(code) => {
                    self.findings.entry(code.clone()).or_default().missing += 1;
                    "missing finding"
                }
                Fault::Forbidden(code) => {
                    self.findings.entry(code.clone()).or_default().forbidden += 1;
                    "forbidden finding"
                }
                Fault::Count => "wrong count",
                Fault::Words => "wrong words",
                Fault::Carried => "wrongly carried",
            };
            *self.faults.entry(name).or_default() += 1;
        }
    }

    /// Nothing is wrong.
    pub fn is_zero(&self) -> bool {
        self.faults.is_empty()
    }

    /// How many situations there are.
    pub fn situations(&self) -> u64 {
        self.situations
    }

    /// How many findings of each code are labelled as right.
    pub fn labelled(&self, code: &str) -> u64 {
        self.findings.get(code).map_or(0, |findings| findings.labelled)
    }

    /// The tables.
    pub fn show(&self) -> String {
        let mut text = format!("{} situations, {} labelled verdicts\n\n", self.situations, self.labelled);
        let _ = writeln!(text, "{:<42} {:<22} {:>6}", "RIGHT", "TOLD", "TIMES");
        for ((right, told), count) in &self.verdicts {
            let mark = if right == told { "" } else { "  wrong" };
            let _ = writeln!(text, "{right:<42} {told:<22} {count:>6}{mark}");
        }
        let _ =
            writeln!(text, "\n{:<26} {:>9} {:>6} {:>8} {:>10}", "FINDING", "LABELLED", "TOLD", "MISSING", "FORBIDDEN");
        for (code, Findings { labelled, told, missing, forbidden }) in &self.findings {
            let _ = writeln!(text, "{code:<26} {labelled:>9} {told:>6} {missing:>8} {forbidden:>10}");
        }
        text.push('\n');
        let kinds = [
            "false NotReady",
            "missed",
            "wrong reason",
            "missing finding",
            "forbidden finding",
            "wrong count",
            "wrong words",
            "wrongly carried",
        ];
        for kind in kinds {
            let _ = writeln!(text, "{kind:<20} {:>4}", self.faults.get(kind).copied().unwrap_or_default());
        }
        text
    }
}
