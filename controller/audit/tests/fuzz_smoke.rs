//! Runs the fuzz target of the auditor on its committed seeds and on mutations of them.

#[path = "../../../fuzz/src/audit.rs"]
mod audit;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn mutated_tables_and_descriptions_are_audited_or_refused() {
    Smoke { corpus: "audit", seeds: 6, rounds: 4_000, alphabet: b"0123456789.,;:-\n\"eE =[]{}()'" }
        .run(audit::run);
}
