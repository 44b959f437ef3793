//! The command line of `dwell pace`.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use dwell_engine::departures::read_gaps;
use dwell_protocol::{
    PaceEngine, PaceJob, PaceKind, PacePattern, PaceSinkJob, PaceSize, SinkTimestamps, Stamps,
    ThreadPlacement,
};
use dwell_units::{BitRate, Bytes, Nanos};

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
Exit codes: 0 measured, 1 runtime failure, 2 usage, 3 a --fail-if condition holds, 4 not supported here or \
not permitted, 5 a --fail-if condition cannot be decided (3 takes precedence), 130 interrupted (partial results are \
printed)."
)]
pub struct Args {
    #[command(subcommand)]
    pub(super) far: Option<FarCommand>,

    /// Target: udp://HOST:PORT; no program needs to listen there [default: a port on loopback,
    /// which measures program and kernel without a network card]
    pub(super) url: Option<String>,

    /// Pattern of departures
    #[arg(long, value_enum, default_value_t = PaceKind::Train)]
    pattern: PaceKind,

    /// Replay the gaps in this file instead of a pattern: one per line, like 12.5us, or in
    /// nanoseconds
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["pattern", "rate", "count", "pairs", "gap", "seed"]
    )]
    from: Option<PathBuf>,

    /// Size of the IP packet [default: 1500B, or the path MTU if that is less]
    #[arg(long, value_name = "BYTES")]
    size: Option<Bytes>,

    /// Size of the UDP payload, instead of --size
    #[arg(long, value_name = "BYTES", conflicts_with = "size")]
    payload_size: Option<Bytes>,

    /// Size of the Ethernet frame without its check sequence, instead of --size
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["size", "payload_size"])]
    frame_size: Option<Bytes>,

    /// Number of pairs
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,

    /// Interval between pairs
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    gap: Nanos,

    /// Rate within a train, like 10Mbit/s
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,

    /// Packets per train
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..))]
    count: u32,

    /// Number of trains
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Minimum pause between trains; a random part of up to the same length is added [default:
    /// 10ms, or a gap if that is longer]
    #[arg(long, value_name = "TIME")]
    pause: Option<Nanos>,

    /// Seed of Poisson gaps
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Sending engine; auto measures all that work here and takes the most accurate
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    engine: PaceEngine,

    /// Bypass the queueing discipline and its rate limit, with an engine that can
    #[arg(long)]
    bypass: bool,

    /// Switch off segmentation offload of the outgoing interface while sending, as gso needs
    #[arg(long)]
    switch_offloads: bool,

    /// Deadline: a packet that leaves later than this after its due time misses it [default: a gap]
    #[arg(long, value_name = "TIME")]
    late: Option<Nanos>,

    /// Trains to send before measuring
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    warm_up: u32,

    /// Use `dwell pace sink` at the URL: its timestamps where this machine has none, and its loss
    /// count
    #[arg(long)]
    sink: bool,

    /// Timestamps to use
    #[arg(long, value_enum, default_value_t = Stamps::Auto)]
    stamps: Stamps,

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
        let rate = || {
            self.rate.ok_or_else(|| {
                Failure::usage("a train needs --rate, like --rate 10Mbit/s (or --pattern pair)")
            })
        };
        let (count, repeat) = (self.count, self.repeat);
        let pattern = match (&self.from, self.pattern) {
            (Some(file), _) => {
                let mut text = String::new();
                let read = fs::File::open(file)
                    .and_then(|from| from.take(MAX_GAP_FILE_LEN).read_to_string(&mut text));
                read.map_err(|error| {
                    Failure::usage(format!("cannot read {}: {error}", file.display()))
                })?;
                let gaps = read_gaps(&text)
                    .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
                PacePattern::Replay { gaps, repeat }
            }
            (None, PaceKind::Pair) => PacePattern::Pair { pairs: self.pairs, gap: self.gap },
            (None, PaceKind::Train) => PacePattern::Train { rate: rate()?, count, repeat },
            (None, PaceKind::Poisson) => {
                PacePattern::Poisson { rate: rate()?, count, repeat, seed: self.seed }
            }
        };
        let size = match (self.size, self.payload_size, self.frame_size) {
            (_, Some(payload), _) => Some(PaceSize::Payload(payload)),
            (_, _, Some(frame)) => Some(PaceSize::Frame(frame)),
            (ip, ..) => ip.map(PaceSize::Ip),
        };
        Ok(PaceJob {
            target: self.url.clone().unwrap_or_default(),
            pattern,
            size,
            engine: self.engine,
            bypass: self.bypass,
            switch_offloads: self.switch_offloads,
            pause: self.pause,
            late: self.late,
            warm_up: self.warm_up,
            sink: if self.sink { SinkTimestamps::Always } else { SinkTimestamps::Never },
            stamps: self.stamps,
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            place: self.place,
        })
    }
}
