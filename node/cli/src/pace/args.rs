//! The command line of `dwell pace`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use dwell_engine::departures::read_gaps;
use dwell_protocol::{PaceJob, PaceParameters, PaceSinkJob, SinkTimestamps, ThreadPlacement};
use dwell_units::Nanos;

use crate::Failure;

/// Maximum size of a file of gaps: 10 million packets, one per line.
const MAX_GAP_FILE_LEN: u64 = 256 << 20;

/// Arguments of `pace`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
A rate counts the bytes of the size option used: --size 200B at 10Mbit/s sends an IP packet every 160 us. All \
three sizes are printed.\n\
--fail-if accepts min, mean, median, p50, p90, p95, p99, p99.9, max and stddev of gap_error (the default \
metric), gap, schedule_error and first_schedule_error; with --sink also loss.\n\
Exit codes: 0 measured, 1 runtime failure, 2 usage, 3 a --fail-if condition holds, 4 not supported or not \
permitted here, 5 a --fail-if condition cannot be decided (3 takes precedence), 130 interrupted (partial results are \
printed)."
)]
pub struct Args {
    #[command(subcommand)]
    pub(super) far: Option<FarCommand>,

    /// Target: udp://HOST:PORT; no program needs to listen there [default: a port on loopback,
    /// which measures program and kernel without a network card]
    pub(super) url: Option<String>,

    /// The packets.
    #[command(flatten)]
    parameters: PaceParameters,

    /// Replay the gaps in this file instead of a pattern: one per line, like 12.5us, or in
    /// nanoseconds
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["pattern", "rate", "count", "pairs", "gap", "seed"]
    )]
    from: Option<PathBuf>,

    /// Switch off segmentation offload of the outgoing interface while sending, as gso needs
    #[arg(long)]
    switch_offloads: bool,

    /// Use `dwell pace sink` at the URL: its timestamps where this machine has none, and its loss
    /// count
    #[arg(long)]
    sink: bool,

    /// CPU and scheduling of the timing loop.
    #[command(flatten)]
    place: ThreadPlacement,

    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,

    /// Use IPv6 only
    #[arg(short = '6')]
    pub(super) ipv6: bool,

    /// Write all timestamps of every packet to this file, for `dwell import`
    #[arg(long, value_name = "FILE")]
    pub(super) samples: Option<PathBuf>,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub(super) json: bool,

    /// Exit with 3 if this condition holds, with 5 if it cannot be decided, like 'gap_error.p95 >
    /// 50us'; repeatable
    #[arg(long, value_name = "CONDITION", action = clap::ArgAction::Append)]
    pub(super) fail_if: Vec<String>,

    /// Print only the result, no progress
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,

    /// Also print the four variability figures j and the comparison of engines
    #[arg(short = 'v', long)]
    pub(super) verbose: bool,
}

/// The far end of `dwell pace`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum FarCommand {
    /// Timestamp arriving packets for senders that use --sink
    Sink(SinkArgs),
}

/// Arguments of `pace sink`.
#[derive(Debug, clap::Args)]
pub(super) struct SinkArgs {
    /// Where to listen.
    #[command(flatten)]
    pub(super) job: PaceSinkJob,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    /// Returns the job that these arguments describe.
    pub(super) fn job(&self) -> Result<PaceJob, Failure> {
        Ok(PaceJob {
            target: self.url.clone().unwrap_or_default(),
            parameters: self.parameters.clone(),
            gaps: self.from.as_deref().map(gaps).transpose()?,
            switch_offloads: self.switch_offloads,
            sink: if self.sink { SinkTimestamps::Always } else { SinkTimestamps::Never },
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            place: self.place,
        })
    }
}

/// Reads a file of gaps.
fn gaps(file: &Path) -> Result<Vec<Nanos>, Failure> {
    let mut text = String::new();
    let read =
        fs::File::open(file).and_then(|from| from.take(MAX_GAP_FILE_LEN).read_to_string(&mut text));
    read.map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
    read_gaps(&text).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}
