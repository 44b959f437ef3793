//! Synthetic round trips in the Roedlach/Vock CSV format: a floor, a body, a tail of stragglers and
//! a few failed cycles.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Gamma, Pareto};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Fixed seed: the rows are the same in every run.
const SEED: u64 = 7;

/// Minimum round trip in nanoseconds, as on the boards of Roedlach/Vock.
const MIN_NANOS: f64 = 170e3;

/// Share of stragglers.
const STRAGGLER_SHARE: f64 = 2e-3;

/// Share of failed cycles, written as NaN.
const FAILED_SHARE: f64 = 1e-4;

/// Maximum value of the format, in nanoseconds.
const MAX_NANOS: f64 = 9e9;

/// Returns a file of this number of rows in `folder`, created on first use.
pub(crate) fn csv(folder: &Path, rows: u64) -> Result<PathBuf> {
    let path = folder.join(format!("roundtrip-{rows}.csv"));
    if !path.exists() {
        eprintln!("creating {}", path.display());
        let partial = path.with_extension("partial");
        write(&partial, rows).with_context(|| format!("cannot write {}", partial.display()))?;
        fs::rename(&partial, &path)?;
    }
    Ok(path)
}

fn write(path: &Path, rows: u64) -> Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let body = Gamma::new(4.0, 27e3)?;
    let tail = Pareto::new(400e3, 2.5)?;
    let mut to = BufWriter::with_capacity(1 << 20, File::create(path)?);
    writeln!(to, "id,roundtrip_time [s]")?;
    for id in 0..rows {
        let late = if random.random_bool(STRAGGLER_SHARE) { tail.sample(&mut random) } else { 0.0 };
        let nanos = (MIN_NANOS + body.sample(&mut random) + late).min(MAX_NANOS) as u64;
        if random.random_bool(FAILED_SHARE) {
            writeln!(to, "{id:>10},        NaN")?;
        } else {
            writeln!(to, "{id:>10},{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)?;
        }
    }
    to.flush()?;
    Ok(())
}
