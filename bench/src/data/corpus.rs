//! Round trips in S4's format, made up: a floor, a body, a tail of stragglers, a few failed cycles.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Gamma, Pareto};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The same rows every time.
const SEED: u64 = 7;

/// Nanoseconds that no round trip is below, as on S4's boards.
const FLOOR: f64 = 170e3;

/// The share of stragglers.
const STRAGGLERS: f64 = 2e-3;

/// The share of failed cycles, which are NaN.
const FAILED: f64 = 1e-4;

/// The longest time that the format holds.
const LONGEST: f64 = 9e9;

/// A file of so many rows in `folder`; made once.
pub(super) fn csv(folder: &Path, rows: u64) -> Result<PathBuf> {
    let path = folder.join(format!("roundtrip-{rows}.csv"));
    if !path.exists() {
        eprintln!("making {}", path.display());
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
        let late = if random.random_bool(STRAGGLERS) { tail.sample(&mut random) } else { 0.0 };
        let nanos = (FLOOR + body.sample(&mut random) + late).min(LONGEST) as u64;
        if random.random_bool(FAILED) {
            writeln!(to, "{id:>10},        NaN")?;
        } else {
            writeln!(to, "{id:>10},{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)?;
        }
    }
    to.flush()?;
    Ok(())
}
