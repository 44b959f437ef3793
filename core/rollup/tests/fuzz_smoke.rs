//! Runs the fuzz target on its committed seeds and 5,000 mutations, on a stable toolchain.

#[path = "../../../fuzz/src/rollup.rs"]
mod rollup;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn arbitrary_records_do_not_panic() {
    Smoke { corpus: "rollup", seeds: 8, rounds: 5_000, alphabet: b"" }.run(rollup::rollup);
}
