//! Micro-bench of the encoder that runs once per sample. docs/performance.md states what it measures.

use std::io;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use dwell_record::segment::{Header, SegmentWriter};
use dwell_sample::{RxStamps, Sample, State, TimestampSource, TxStamps};
use dwell_units::{Instant, Monotonic, Nanos, Pairing, Realtime};

/// CLOCK_REALTIME minus CLOCK_MONOTONIC.
const OFFSET: Nanos = Nanos(1_700_000_000_000_000_000);
/// Samples per iteration.
const SERIES_LEN: usize = 1_000;

fn main() {
    divan::main();
}

/// Encodes samples of UDP probes with kernel timestamps into a segment; nothing is written to disk.
#[divan::bench]
fn segment_write(bencher: Bencher) {
    let bridge = Pairing {
        real: Instant::EPOCH + OFFSET,
        mono: Instant::<Monotonic>::EPOCH,
        width: Nanos(28),
    };
    let samples: Vec<Sample> = (0..SERIES_LEN as i64).map(sample).collect();
    let header = Header::of_ping("udp://n2:7".into());
    let mut writer = SegmentWriter::new(io::sink(), &header).expect("a sink takes everything");
    bencher.counter(ItemsCount::new(SERIES_LEN)).bench_local(|| {
        for sample in &samples {
            writer.push(black_box(sample), Some(&bridge), TimestampSource::KernelSw);
        }
        writer.flush()
    });
}

fn sample(n: i64) -> Sample {
    let intended = Instant::<Monotonic>::from_nanos(n * 1_000_000);
    let app = Instant::<Realtime>::from_nanos(intended.as_nanos()) + OFFSET + Nanos(40 + n % 7);
    let kernel = Some(app + Nanos(1_500 + n % 31));
    let rx = RxStamps {
        driver: None,
        hw: None,
        kernel: Some(app + Nanos(20_000 + n % 997)),
        app: app + Nanos(25_000 + n % 1_009),
    };
    Sample {
        id: n as u64,
        state: State::Received,
        reordered: false,
        intended,
        tx: TxStamps { app, sched: None, tcx: None, kernel, hw: None },
        rx: Some(rx),
        remote: None,
    }
}
