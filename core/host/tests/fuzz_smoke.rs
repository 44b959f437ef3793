//! Runs the fuzz target on its committed seeds and on mutations of them, with a stable toolchain.

#[path = "../../../fuzz/src/ftm.rs"]
mod ftm;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn any_ftm_text_is_read_without_panic() {
    Smoke { corpus: "ftm", seeds: 4, rounds: 5_000, alphabet: b"0123456789|,:-. \nRTTt" }
        .run(ftm::ftm);
}
