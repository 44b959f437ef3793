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
fn any_trace_is_replayed_or_refused_without_panic() {
    Smoke { corpus: "gaps", seeds: 2, rounds: 5_000, alphabet: b"0123456789.-#\nnums" }
        .run(gaps::gaps);
}

#[test]
fn any_sealed_packet_is_refused_without_panic() {
    Smoke { corpus: "sealed", seeds: 3, rounds: 2_000, alphabet: b"" }.run(sealed::sealed);
}
