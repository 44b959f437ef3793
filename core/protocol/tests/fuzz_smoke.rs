//! Runs the fuzz target on its committed seeds and on 5,000 mutations of them, with a stable
//! toolchain.

#[path = "../../../fuzz/src/frame.rs"]
mod frame;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn frames_of_any_bytes_are_read_and_written_again_without_panic() {
    Smoke { corpus: "frame", seeds: 2, rounds: 5_000, letters: b"" }.run(frame::frame);
}
