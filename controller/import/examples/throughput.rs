//! Measures the import rate of the Roedlach/Vock round-trip CSV on one core: ten million rows from
//! memory.
//!
//! `cargo run --release -p dwell-import --example throughput`

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Instant;

use dwell_import::{Format, read};

const ROWS: usize = 10_000_000;

fn main() -> Result<(), dwell_import::ImportError> {
    let mut text = String::with_capacity(23 * (ROWS + 1));
    text.push_str("id,roundtrip_time [s]\n");
    for id in 0..ROWS {
        let nanos = 170_000 + id * 7_919 % 3_000_000;
        writeln!(text, "{id:>10},0.{nanos:09}").expect("writing to a string cannot fail");
    }
    for _ in 0..5 {
        let (mut input, mut rows) = (text.as_bytes(), 0);
        let begin = Instant::now();
        read(Format::RoundTripCsv, &mut input, &mut |_, batch| {
            rows += batch.len();
            Ok::<_, Infallible>(())
        })?;
        let seconds = begin.elapsed().as_secs_f64();
        println!("{rows} rows in {seconds:.3} s: {:.0} MB/s", text.len() as f64 / seconds / 1e6);
    }
    Ok(())
}
