//! Runs the fuzz target on its committed seeds and on 5,000 mutations of them, with a stable
//! toolchain.

#[path = "../../../fuzz/src/frame.rs"]
mod frame;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn any_frame_is_read_and_rewritten_without_panic() {
    Smoke { corpus: "frame", seeds: 2, rounds: 5_000, alphabet: b"" }.run(frame::frame);
}
