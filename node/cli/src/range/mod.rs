//! `dwell range`: distance from round-trip times.
//!
//! `source` obtains round trips: from the measuring loop of `dwell ping`, a list or results of
//! 802.11 FTM. `calibration` is the file that `range calibrate` writes. `result` computes the object
//! `dwell.range/1`, and `print` shows it. The estimators are in `dwell_stats::range`.

mod args;
mod calibration;
mod print;
mod result;
mod source;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

pub use args::Args;
use args::{CalibrateArgs, RangeCommand};
use calibration::Calibration;
use result::RangeResult;
use source::{Measured, Request};

use crate::{Exit, Failure};

/// Seed of the bootstrap: the same round trips always have the same interval.
const SEED: u64 = 1;

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Some(RangeCommand::Calibrate(args)) => calibrate(args),
        None => measure(args),
    }
}

fn measure(args: &Args) -> Result<Exit, Failure> {
    let request = Request::of(&args.source)?;
    let speed = args.source.speed()?;
    let calibration = args.calibration.as_deref().map(Calibration::read).transpose()?;
    if let Some(calibration) = &calibration {
        calibration.check_request(&request)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let measured = request.measure(&args.source, &stop)?;
    if let Some(calibration) = &calibration
        && !measured.rtts_ps.is_empty()
    {
        calibration.check(&measured.source)?;
    }
    let result = RangeResult::of(&measured, speed, args.estimator, calibration.as_ref());
    if args.json {
        write_json(&mut io::stdout().lock(), &result)?;
    } else {
        print::result(&mut crate::terminal::stdout(), &result)?;
    }
    Ok(conclude(&measured, stop.load(Ordering::Relaxed)))
}

fn calibrate(args: &CalibrateArgs) -> Result<Exit, Failure> {
    let request = Request::of(&args.source)?;
    let speed = args.source.speed()?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let measured = request.measure(&args.source, &stop)?;
    let interrupted = stop.load(Ordering::Relaxed);
    if measured.rtts_ps.is_empty() {
        return Ok(conclude(&measured, interrupted));
    }
    let calibration = Calibration::of(&measured, speed, args.distance)?;
    let is_stdout = args.output == Path::new("-");
    if is_stdout {
        write_json(&mut io::stdout().lock(), &calibration)?;
    } else {
        write_file(&args.output, &calibration)?;
    }
    if !args.source.quiet {
        let mut text = Vec::new();
        print::calibration(&mut text, &calibration, &measured)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        if is_stdout {
            crate::say(text.trim_end());
        } else {
            crate::terminal::stdout().write_all(text.as_bytes())?;
        }
    }
    Ok(conclude(&measured, interrupted))
}

/// The exit code of a measurement, with a message if there was nothing to measure.
fn conclude(measured: &Measured, interrupted: bool) -> Exit {
    if interrupted {
        return Exit::Interrupted;
    }
    if measured.rtts_ps.is_empty() {
        crate::say(&format!("dwell: no round trip from {}: {}", measured.target, measured.advice));
        return Exit::Failed;
    }
    Exit::Measured
}

fn write_json(out: &mut impl Write, object: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, object)?;
    writeln!(out)
}

/// Replaces the file as a whole, so that a full disk leaves the previous one.
fn write_file(path: &Path, calibration: &Calibration) -> Result<(), Failure> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let write = || -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
        write_json(&mut file, calibration)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write --output {}", path.display())).map_err(Into::into)
}
