//! Runs the fuzz target on its committed seeds and 5,000 mutations of them, on a stable toolchain.

#[path = "../../../fuzz/src/import.rs"]
mod import;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn arbitrary_files_are_imported_or_refused() {
    Smoke { corpus: "import", seeds: 15, rounds: 5_000, alphabet: b"0123456789,./- \n" }
        .run(import::import);
}
