//! Runs the fuzz target on its committed seeds and 5,000 mutations, on a stable toolchain.

#[path = "../../../fuzz/src/segment.rs"]
mod segment;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn arbitrary_segments_do_not_panic() {
    Smoke { corpus: "segment", seeds: 2, rounds: 5_000, alphabet: b"" }.run(segment::segment);
}
