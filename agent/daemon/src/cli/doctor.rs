//! `doctor`: what the machine offers, one line each.

use super::{
    DoctorArgs, Exit, Failure, Output, check_config,
    exit::print,
    table::{Style, Tone, clean},
};
use crate::{
    config::{self, Config, Surroundings},
    doctor::{Check, Report, State, examine},
};
use std::process::ExitCode;

/// Looks at everything and prints it. The exit code says whether the agent can run.
pub(super) async fn run(output: Output, args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let (config, given) = configuration(args)?;
    let report = examine(&config, given).await.map_err(|error| Failure::running(format!("{error:#}")))?;
    let text = match output {
        Output::Json => {
            let json = serde_json::to_string_pretty(&report);
            json.map(|json| format!("{json}\n")).map_err(Failure::running)?
        }
        Output::Table => show(&report, Style::of_stdout()),
    };
    print(&text, &mut std::io::stdout())?;
    Ok(if report.can_run { Exit::Done } else { Exit::No }.into())
}

/// The configuration given, or what is used without one; and whether it is the user's.
fn configuration(args: &DoctorArgs) -> Result<(Config, bool), Failure> {
    let surroundings = Surroundings::of_process(args.sets.clone());
    match &args.config {
        Some(path) => config::load(path, &surroundings).map(|config| (config, true)),
        // Somebody has to be named; nobody is asked.
        None => {
            let defaults = "hugegraph: {stores: ['localhost:8500']}\n";
            config::parse(defaults, "defaults", &surroundings).map(|config| (config, false))
        }
    }
    .map_err(|mistakes| check_config::complaint(&mistakes))
}

fn show(report: &Report, style: Style) -> String {
    let width = report.checks.iter().map(|check| check.name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for Check { name, state, found, lost, how, fatal } in &report.checks {
        let (word, tone) = match state {
            State::Ok => ("ok", Tone::Good),
            State::Degraded => ("degraded", Tone::Doubtful),
            State::Missing => ("missing", Tone::Bad),
        };
        let pad = " ".repeat("degraded".len() - word.len());
        let gap = " ".repeat(width - name.chars().count());
        text.push_str(&format!("{}{pad}  {}{gap}  {}", style.paint(word, tone), clean(name), clean(found)));
        if *state != State::Ok {
            text.push_str(&format!(" | lost: {} | to get it: {}", clean(lost), clean(how)));
        }
        if *fatal {
            text.push_str(" | the agent does not run like this");
        }
        text.push('\n');
    }
    let count = |state: State| report.checks.iter().filter(|check| check.state == state).count();
    let end = if report.can_run { "the agent can run here" } else { "the agent cannot run here" };
    text.push_str(&format!(
        "\n{} ok, {} degraded, {} missing: {end}\n",
        count(State::Ok),
        count(State::Degraded),
        count(State::Missing)
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_each_and_the_end() {
        let check = |name: &str, state, lost: &str, fatal| Check {
            name: name.into(),
            state,
            found: "found\n".into(),
            lost: lost.into(),
            how: lost.into(),
            fatal,
        };
        let checks = vec![
            check("kernel", State::Ok, "", false),
            check("CAP_BPF", State::Missing, "much", false),
            check("x", State::Degraded, "some", true),
        ];
        let report = Report { checks, can_run: false };
        let expected = "\
ok        kernel   found?
missing   CAP_BPF  found? | lost: much | to get it: much
degraded  x        found? | lost: some | to get it: some | the agent does not run like this

1 ok, 1 degraded, 1 missing: the agent cannot run here
";
        assert_eq!(show(&report, Style { colours: false }), expected);
    }
}
