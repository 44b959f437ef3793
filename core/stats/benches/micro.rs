//! Micro-bench of counting, which runs once per sample. docs/performance.md states what it measures.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use dwell_stats::LogCounts;

/// Delays per iteration.
const SERIES_LEN: usize = 1_000;

fn main() {
    divan::main();
}

/// Counts delays in the bins of an HDR histogram: one by one, as during a measurement, and as a
/// series, as when a file is read.
#[divan::bench(args = ["each", "series"])]
fn hdr_record(bencher: Bencher, how: &str) {
    // Delays of 20 to 84 us in no order.
    let delays: Vec<i64> = (0..SERIES_LEN as i64).map(|n| 20_000 + n * 7_919 % 64_000).collect();
    let mut counts = LogCounts::three_digits();
    bencher.counter(ItemsCount::new(SERIES_LEN)).bench_local(|| match how {
        "each" => black_box(&delays).iter().for_each(|delay| counts.record(*delay as u64)),
        _ => counts.record_all(black_box(&delays), 84_000),
    });
}
