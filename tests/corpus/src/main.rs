//! Plays the situations and prints the confusion matrix; exit code 1 unless it is zero. With an argument, plays those
//! whose path contains it, and prints what was said as well.

#![expect(clippy::print_stdout, reason = "a command for developers")]

use std::process::ExitCode;
use storewatch_tests_corpus::{cases, matrix::Matrix};

fn main() -> ExitCode {
    let only = std::env::args().nth(1);
    let mut matrix = Matrix::default();
    for case in cases::all(only.as_deref().unwrap_or_default()) {
        let course = case.play();
        let judged = case.judge(&course);
        if only.is_some() {
            println!("{}\n{}", case.name, course.show());
        }
        if !judged.faults.is_empty() {
            println!("{}:", case.name);
            judged.faults.iter().for_each(|(_, fault)| println!("    {fault}"));
        }
        matrix.add(&judged);
    }
    println!("{}", matrix.show());
    if matrix.is_zero() && matrix.situations() > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
