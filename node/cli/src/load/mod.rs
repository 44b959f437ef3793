//! `dwell load`: generates load on this node or the network and reports the load achieved.

mod bulk;
mod cpu;
mod itg;
mod sink;
mod traffic;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_record::{Kind, Placement, Scalar, Summary, Trust, Warning, by_name};
use dwell_sample::Point;
use dwell_stats::ComponentFigures;
use serde_json::Value;

use crate::environment::environment;
use crate::ping::SampleFile;
use crate::{Exit, Failure, Scheme, Target};

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    load: Load,
}

#[derive(Debug, clap::Subcommand)]
enum Load {
    /// Keep CPUs busy for a share of the time
    Cpu(cpu::Args),
    /// Send UDP traffic at a rate, or bulk data over TCP
    Traffic(traffic::Args),
    /// Receive and count traffic
    Sink(sink::Args),
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let announce = &mut |line: &str| crate::say(line);
    let file = |path: Option<PathBuf>| path.as_deref().map(SampleFile::create).transpose();
    let (loaded, json, has_an_end) = match args.load {
        Load::Cpu(args) => {
            (burn(&args.job, &stop, announce)?.into(), args.json, args.job.duration.is_some())
        }
        Load::Traffic(args) => {
            let loaded = match args.job()? {
                // Validate the job before creating any file.
                Job::Traffic(job) => {
                    traffic::check(&job)?;
                    send(&job, file(args.samples.clone())?, &stop, announce)?
                }
                Job::Bulk(job) => {
                    bulk::check(&job)?;
                    bulk::send(&job, &stop, announce)?
                }
            };
            (loaded, args.json, args.has_an_end())
        }
        // A sink is meant to be stopped.
        Load::Sink(args) => {
            sink::check(&args.job)?;
            (sink(&args.job, file(args.samples)?, &stop, announce)?, args.json, false)
        }
    };
    let Loaded { summary, failure } = loaded;
    let mut out = io::stdout().lock();
    if json {
        out.write_all(summary.to_json().as_bytes())?;
    } else {
        print(&mut out, &summary)?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    // A load without a limit is meant to be stopped.
    let cut_short = has_an_end && stop.load(Ordering::Relaxed);
    Ok(if cut_short { Exit::Interrupted } else { Exit::Measured })
}

pub(crate) use bulk::send as send_bulk;
pub(crate) use cpu::burn;
pub(crate) use itg::{receive as receive_by_itg, send as send_by_itg};
pub(crate) use sink::sink;
use traffic::Job;
pub(crate) use traffic::send;

/// Result of a load.
pub(crate) struct Loaded {
    /// The result.
    pub(crate) summary: Summary,
    /// Samples could not be written; the counters are still valid.
    pub(crate) failure: Option<Failure>,
}

impl From<Summary> for Loaded {
    fn from(summary: Summary) -> Self {
        Self { summary, failure: None }
    }
}

/// A load's summary without metrics and trust.
fn load_summary<'n>(
    target: impl Into<String>,
    engine: &str,
    parameters: impl IntoIterator<Item = (&'n str, Value)>,
    values: impl IntoIterator<Item = (&'n str, Scalar)>,
    placement: Placement,
) -> Summary {
    Summary {
        parameters: by_name(parameters),
        values: by_name(values.into_iter().map(|(name, value)| (name, Some(value)))),
        environment: environment(None, placement),
        ..Summary::new(Kind::Load, target, engine)
    }
}

/// Warns about timestamps that are missing for some packets.
fn warn_of_missing_stamps(trust: &mut Trust, components: &ComponentFigures) {
    for point in Point::ALL {
        trust.warn_count(components.missing(point).unwrap_or(0), |count| {
            Warning::MissingTimestamps("packets", point.name(), count)
        });
    }
}

/// Values printed even if zero.
const ALWAYS_PRINTED: [&str; 3] = ["packets", "payload_bytes", "tcp_payload_bytes"];

/// Maximum number of connections printed individually.
const MAX_CONNECTION_ROWS: usize = 16;

/// Prints the result as text.
fn print(out: &mut impl Write, summary: &Summary) -> io::Result<()> {
    crate::human::print_values(out, &summary.values, &ALWAYS_PRINTED)?;
    print_connections(out, summary)?;
    for (name, figures) in &summary.metrics {
        let name = name.trim_end_matches("_ns").replace('_', " ");
        let of = [("median", figures.p50), ("p95", figures.p95), ("max", figures.max)];
        let known = of
            .into_iter()
            .filter_map(|(label, ns)| Some(format!("{label} {}", crate::human::time(ns? as f64))));
        writeln!(out, "{name:28}{}", known.collect::<Vec<_>>().join(", "))?;
    }
    crate::human::print_warnings(out, &summary.trust)
}

/// Prints one row per TCP connection of a sink, up to [`MAX_CONNECTION_ROWS`].
fn print_connections(out: &mut impl Write, summary: &Summary) -> io::Result<()> {
    let list = |name: &str| match summary.parameters.get(name) {
        Some(Value::Array(list)) => list.as_slice(),
        _ => &[],
    };
    let from = list("connection_from");
    let figures = list("connection_payload_bytes").iter().zip(list("connection_rate_bps"));
    for (from, (bytes, rate)) in from.iter().zip(figures).take(MAX_CONNECTION_ROWS) {
        let amount =
            |name, value: &Value| crate::human::amount(name, value.as_f64().unwrap_or(f64::NAN));
        let (bytes, rate) = (amount("payload_bytes", bytes), amount("rate_bps", rate));
        writeln!(out, "{:28}{bytes}, {rate}", from.as_str().unwrap_or_default())?;
    }
    if from.len() > MAX_CONNECTION_ROWS {
        writeln!(out, "{:28}--json lists more", "...")?;
    }
    Ok(())
}

/// Resolves a `udp://` URL.
pub(crate) fn udp_addresses(url: &str) -> Result<Vec<SocketAddr>, Failure> {
    addresses(url, &[Scheme::Udp]).map(|(_, addresses)| addresses)
}

/// Resolves a URL whose scheme is one of `allowed`; returns scheme and addresses.
fn addresses(url: &str, allowed: &[Scheme]) -> Result<(Scheme, Vec<SocketAddr>), Failure> {
    let target = Target::with_scheme(url)
        .map_err(|error| Failure::usage(format!("invalid target: {error}")))?;
    if !allowed.contains(&target.scheme) {
        let names: Vec<_> = allowed.iter().map(|scheme| format!("{}://", scheme.name())).collect();
        return Err(Failure::usage(format!("'{url}': only {} is supported", names.join(" or "))));
    }
    let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(|error| {
        Failure::usage(format!("cannot resolve '{}': {error}; give an address", target.host))
    })?;
    Ok((target.scheme, addresses.collect()))
}
