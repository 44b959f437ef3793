//! Runs the fuzz target on its committed seeds and 5,000 mutations, on a stable toolchain.

#[path = "../../../fuzz/src/segment.rs"]
mod segment;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn segments_of_any_bytes_are_read_and_written_again_without_panic() {
    Smoke { corpus: "segment", seeds: 2, rounds: 5_000, letters: b"" }.run(segment::segment);
}
