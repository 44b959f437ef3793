//! The fuzz target over its committed seeds and 5,000 mutations of them, on a stable toolchain.

#[path = "../../../fuzz/src/gaps.rs"]
mod gaps;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn traces_of_any_text_are_replayed_or_refused_without_panic() {
    Smoke { corpus: "gaps", seeds: 2, rounds: 5_000, letters: b"0123456789.-#\nnums" }
        .run(gaps::gaps);
}
