//! Every labelled situation, and what must be among them.

use storewatch_tests_corpus::{cases, labels::CODES, matrix::Matrix};

#[test]
fn the_confusion_matrix_is_zero() {
    let mut matrix = Matrix::default();
    let mut faults = String::new();
    for case in cases::all("") {
        let judged = case.judge(&case.play());
        for (_, fault) in &judged.faults {
            faults.push_str(&format!("{}: {fault}\n", case.name));
        }
        matrix.add(&judged);
    }
    assert!(matrix.is_zero(), "{faults}\n{}", matrix.show());
    assert!(matrix.situations() >= 100, "{}", matrix.show());
    for code in CODES {
        assert!(matrix.labelled(code.as_str()) > 0, "no situation shows {}:\n{}", code.as_str(), matrix.show());
    }
}
