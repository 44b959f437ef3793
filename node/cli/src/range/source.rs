//! Sources of round trips.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use dwell_host::FtmResults;
use dwell_io::activity::Own;
use dwell_protocol::{PingJob, PingParameters, ProbeStamps};
use dwell_record::segment::{self, Record};
use dwell_record::{TrustWarning, Warning};
use dwell_sample::{Sample, State, TimestampSource};
use dwell_stats::RoundTrip;
use dwell_units::Nanos;
use serde::{Deserialize, Serialize};

use super::args::SourceArgs;
use crate::ping::{self, Observer, Outputs, Replies, SampleFile};
use crate::progress::Progress;
use crate::{Failure, Target};

/// Maximum size of a file of round trips.
const MAX_FILE_LEN: u64 = 64 << 20;

/// Maximum number of round trips in a file.
const MAX_ROUND_TRIPS: usize = 1_000_000;

/// Picoseconds per nanosecond.
const PS: i64 = 1_000;

/// Properties of round trips that a calibration and its measurements must share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    /// `ping`, `rtts` or `ftm`.
    pub(super) kind: SourceKind,
    /// Scheme of the probes; null in files.
    pub(super) protocol: Option<String>,
    /// Size of the probes; null in files.
    pub(super) payload_bytes: Option<u64>,
    /// Source of the timestamps; null in files.
    pub(super) stamps: Option<String>,
}

/// Kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SourceKind {
    /// Probes of the measuring loop.
    Ping,
    /// A list of round trips.
    Rtts,
    /// Results of 802.11 FTM.
    Ftm,
}

impl SourceKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Rtts => "rtts",
            Self::Ftm => "ftm",
        }
    }
}

/// A requested source.
#[derive(Debug)]
pub(super) enum Request {
    Ping(Target),
    Rtts(String),
    Ftm(String),
}

/// Round trips, and information on them.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) source: Source,
    /// URL, or name of the file.
    pub(super) target: String,
    /// Round trips in picoseconds, in time order.
    pub(super) rtts_ps: Vec<i64>,
    /// Smallest step that the source can have.
    pub(super) finest_ps: f64,
    /// Results that were not used because they are no measurement.
    pub(super) invalid: u64,
    /// Round trips repaired after a counter wrapped.
    pub(super) wrapped: u64,
    pub(super) warnings: Vec<TrustWarning>,
    /// Advice if there is no round trip.
    pub(super) advice: String,
}

impl Request {
    pub(super) fn of(args: &SourceArgs) -> Result<Self, Failure> {
        match (&args.target, args.from.as_deref()) {
            (Some(target), _) => Ok(Self::Ping(
                target
                    .parse()
                    .map_err(|error: crate::TargetError| Failure::usage(error.to_string()))?,
            )),
            (None, Some([kind, file])) => match kind.as_str() {
                "rtts" if args.peer.is_some() => {
                    Err(Failure::usage("--peer selects from results of --from ftm only"))
                }
                "rtts" => Ok(Self::Rtts(file.clone())),
                "ftm" => Ok(Self::Ftm(file.clone())),
                other => Err(Failure::usage(format!(
                    "invalid value '{other}' for --from: use rtts FILE or ftm FILE"
                ))),
            },
            _ => Err(Failure::usage(
                "nothing to measure: give a URL such as icmp://192.0.2.7, --from rtts FILE or --from ftm FILE",
            )),
        }
    }

    pub(super) fn kind(&self) -> SourceKind {
        match self {
            Self::Ping(_) => SourceKind::Ping,
            Self::Rtts(_) => SourceKind::Rtts,
            Self::Ftm(_) => SourceKind::Ftm,
        }
    }

    pub(super) fn measure(
        &self,
        args: &SourceArgs,
        stop: &Arc<AtomicBool>,
    ) -> Result<Measured, Failure> {
        match self {
            Self::Ping(target) => probe(target, args, stop),
            Self::Rtts(file) => list(file),
            Self::Ftm(file) => ftm(file, args.peer.as_deref()),
        }
    }
}

/// Sends probes with the measuring loop of `dwell ping`.
fn probe(target: &Target, args: &SourceArgs, stop: &Arc<AtomicBool>) -> Result<Measured, Failure> {
    let mut job = PingJob::to(target.to_string());
    job.parameters = PingParameters {
        count: Some(args.count),
        interval: Some(args.interval),
        size: args.size,
        timeout: Some(args.timeout),
        stamps: args.stamps,
        ..PingParameters::default()
    };
    job.place = args.place;
    let mut file = tempfile::tempfile().context("cannot create a file for samples")?;
    let to = file.try_clone().context("cannot create a file for samples")?;
    let outputs = Outputs {
        csv: None,
        lines: false,
        samples: Some(SampleFile { to: Box::new(to), name: "the file of samples".into() }),
        replies: Replies::Silent,
        observer: Box::new(ProbeProgress::new(args)),
    };
    let measured = ping::measure(&job, outputs, Own::Process, stop).map_err(|failure| {
        failure.or_interrupted(stop.load(std::sync::atomic::Ordering::Relaxed))
    })?;
    if let Some(failure) = measured.failure {
        return Err(failure);
    }
    file.seek(SeekFrom::Start(0))?;
    let (stamps, rtts) = round_trips(&mut file, args.stamps)?;
    let summary = measured.summary;
    let payload_bytes = summary.number("payload_bytes").map(|bytes| bytes as u64);
    let source = Source {
        kind: SourceKind::Ping,
        protocol: Some(target.scheme.name().to_owned()),
        payload_bytes,
        stamps: (!rtts.is_empty()).then(|| stamps.name().to_owned()),
    };
    Ok(Measured {
        source,
        target: summary.target,
        rtts_ps: rtts.into_iter().map(|rtt| rtt.0.saturating_mul(PS)).collect(),
        finest_ps: PS as f64,
        invalid: 0,
        wrapped: 0,
        warnings: summary.trust.warnings,
        advice: format!("probes sent: {}; {}", measured.sent, measured.advice),
    })
}

/// Round trips of a segment between the timestamps closest to the wire that most replies have; those
/// of the card are not used if the driver's were asked for.
fn round_trips(
    segment: &mut File,
    stamps: ProbeStamps,
) -> Result<(TimestampSource, Vec<Nanos>), Failure> {
    let mut by_source = [const { Vec::new() }; 4];
    let mut each = |sample: &Sample| {
        let Some(rx) = sample.rx.filter(|_| sample.state == State::Received) else { return };
        let hw = sample.tx.hw.zip(rx.hw).map(|(tx, rx)| rx - tx);
        let kernel = sample.tx.kernel.zip(rx.kernel).map(|(tx, rx)| rx - tx);
        let left = sample.tx.tcx.or(sample.tx.kernel);
        let driver = left.zip(rx.driver).map(|(tx, rx)| rx - tx);
        let all = [hw, driver, kernel, Some(rx.app - sample.tx.app)];
        for (rtts, rtt) in by_source.iter_mut().zip(all) {
            rtts.extend(rtt);
        }
    };
    segment::read(segment, &mut |record| {
        // Without a bridge, a clock was stepped.
        if let Record::Sample(sample, Some(_), _) = record {
            each(sample);
        }
    })
    .context("cannot read the samples of the measurement")?;
    let [hw, driver, kernel, user] = by_source;
    let received = user.len();
    let sources = [
        (TimestampSource::Hw, hw),
        (TimestampSource::Driver, driver),
        (TimestampSource::KernelSw, kernel),
    ];
    let without_card = usize::from(stamps == ProbeStamps::Driver);
    let deepest =
        sources.into_iter().skip(without_card).find(|(_, rtts)| 2 * rtts.len() > received);
    Ok(deepest.unwrap_or((TimestampSource::User, user)))
}

/// Reads a round trip per line, like `1113us`. Empty lines and text after `#` are ignored.
fn list(file: &str) -> Result<Measured, Failure> {
    let text = read(file)?;
    let mut rtts_ps = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let value = line.split('#').next().unwrap_or_default().trim();
        if value.is_empty() {
            continue;
        }
        let rtt: Nanos = value.replace(' ', "").parse().map_err(|error| {
            Failure::usage(format!("--from rtts {file}: line {}: {error}", number + 1))
        })?;
        if rtts_ps.len() >= MAX_ROUND_TRIPS {
            return Err(Failure::usage(format!(
                "--from rtts {file}: more than {MAX_ROUND_TRIPS} round trips"
            )));
        }
        rtts_ps.push(rtt.0.saturating_mul(PS));
    }
    let mut measured = Measured::of_file(SourceKind::Rtts, file, rtts_ps);
    measured.advice = "the file has no line with a time".into();
    Ok(measured)
}

/// Reads results of 802.11 FTM.
fn ftm(file: &str, peer: Option<&str>) -> Result<Measured, Failure> {
    let results = FtmResults::read(&read(file)?);
    let peers = || results.peers.join(", ");
    let chosen = match peer {
        Some(peer) => {
            let wanted = peer.to_ascii_lowercase();
            let found = results.peers.iter().position(|known| *known == wanted);
            Some(found.ok_or_else(|| {
                Failure::usage(format!(
                    "--peer {peer}: no result of this peer; the file has {}",
                    if results.peers.is_empty() { "none".to_owned() } else { peers() }
                ))
            })?)
        }
        None if results.peers.len() > 1 => {
            return Err(Failure::usage(format!(
                "--from ftm {file}: several peers; choose one with --peer: {}",
                peers()
            )));
        }
        None => None,
    };
    let mut measured = Measured::of_file(SourceKind::Ftm, file, results.rtts_ps(chosen));
    measured.finest_ps = results.step_ps();
    measured.invalid = results.invalid;
    measured.wrapped = results.wrapped;
    if results.truncated {
        measured.warnings.push(Warning::ResultsTruncated(MAX_ROUND_TRIPS).into());
    }
    measured.advice = match results.invalid {
        0 => "the text is neither output of iw, nor a report of ESP-IDF, nor CSV with a header"
            .into(),
        invalid => format!("all {invalid} results are invalid"),
    };
    Ok(measured)
}

impl Measured {
    fn of_file(kind: SourceKind, file: &str, rtts_ps: Vec<i64>) -> Self {
        Self {
            source: Source { kind, protocol: None, payload_bytes: None, stamps: None },
            target: if file == "-" { "standard input".to_owned() } else { file.to_owned() },
            rtts_ps,
            finest_ps: 1.0,
            invalid: 0,
            wrapped: 0,
            warnings: Vec::new(),
            advice: String::new(),
        }
    }
}

/// Reads a text file, or standard input for `-`.
fn read(file: &str) -> Result<String, Failure> {
    let from: Box<dyn Read> = match file {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(File::open(path).with_context(|| format!("cannot read --from {path}"))?),
    };
    let mut bytes = Vec::new();
    from.take(MAX_FILE_LEN + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read --from {file}"))?;
    if bytes.len() as u64 > MAX_FILE_LEN {
        let limit = MAX_FILE_LEN >> 20;
        return Err(Failure::usage(format!("--from {file}: larger than {limit} MiB")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Progress of probes.
struct ProbeProgress {
    progress: Option<Progress>,
    count: usize,
}

impl ProbeProgress {
    fn new(args: &SourceArgs) -> Self {
        let progress = (!args.quiet).then(|| Progress::new("probes"));
        Self { progress, count: usize::try_from(args.count).unwrap_or(usize::MAX) }
    }
}

impl Observer for ProbeProgress {
    fn show(&mut self, measured: &RoundTrip) {
        if let Some(progress) = &self.progress {
            let sent = usize::try_from(measured.packets().sent()).unwrap_or(usize::MAX);
            progress.show(sent, self.count, "");
        }
    }

    /// Does nothing: the message is also a warning of the result.
    fn say(&mut self, _: &str) {}

    fn end(&mut self) {
        self.progress = None;
    }
}
