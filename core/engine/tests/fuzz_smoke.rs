//! Runs the fuzz targets on their committed seeds and on mutations of them, with a stable
//! toolchain.

#[path = "../../../fuzz/src/gaps.rs"]
mod gaps;
#[path = "../../../fuzz/src/sealed.rs"]
mod sealed;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn traces_of_any_text_are_replayed_or_refused_without_panic() {
    Smoke { corpus: "gaps", seeds: 2, rounds: 5_000, letters: b"0123456789.-#\nnums" }
        .run(gaps::gaps);
}

#[test]
fn sealed_packets_of_any_bytes_are_refused_without_panic() {
    Smoke { corpus: "sealed", seeds: 3, rounds: 2_000, letters: b"" }.run(sealed::sealed);
}
