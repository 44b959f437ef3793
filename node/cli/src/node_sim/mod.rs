//! `dwell node-sim`: a simulated microcontroller as a server of the request/acknowledge exchange.
//!
//! The model is `dwell_engine::node_sim`. `sockets` connects it to UDP and TCP sockets, on one thread;
//! this file parses the command line and builds the summary.

mod sockets;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_engine::node_sim::NodeSettings;
use dwell_engine::protocol::{Reflection, StreamReply};
use dwell_io::cpu::{self, Placement};
use dwell_protocol::{NodePreset, NodeSimJob, NodeSimParameters};
use dwell_record::{Kind, Scalar, Stamps, Summary, Trust, by_name};
use dwell_sample::TimestampSource;
use serde_json::json;

use crate::environment::environment;
use crate::{Exit, Failure, Scheme, Target, parameter, placement};
use sockets::{NodeSockets, Transport};

/// Where a node listens without URLs.
const DEFAULT_URLS: [&str; 4] = [
    "text+udp://[::]:7100",
    "text+tcp://[::]:7100",
    "text+udp://0.0.0.0:7100",
    "text+tcp://0.0.0.0:7100",
];

/// Arguments of `node-sim`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
docs/node-sim.md describes the model.\n\
Exit codes: 0 stopped by SIGINT or SIGTERM, 1 a socket cannot be opened or failed, 2 usage.")]
pub struct Args {
    /// The job.
    #[command(flatten)]
    job: NodeSimJob,

    /// Print the summary as one JSON object at the end
    #[arg(long)]
    json: bool,

    /// Print only errors and the summary
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let summary = perform(&args.job, &stop, &mut |urls| {
        if !args.quiet {
            urls.iter().for_each(|url| crate::say(&format!("listening on {url}")));
        }
    })?;
    if args.json {
        use std::io::Write;
        io::stdout().lock().write_all(summary.to_json().as_bytes())?;
    } else {
        print(&summary)?;
    }
    Ok(Exit::Measured)
}

/// Serves until stopped. When all sockets are open, calls `ready` with their URLs.
pub(crate) fn perform(
    job: &NodeSimJob,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&[String]),
) -> Result<Summary, Failure> {
    job.parameters.check().map_err(|error| parameter::usage::<NodeSimParameters>(&error))?;
    placement::check(&job.place)?;
    let settings = settings(&job.parameters);
    let listens = listens(&job.urls)?;
    let seed = job.parameters.seed.unwrap_or_else(random_seed);
    let mut sockets = NodeSockets::new(settings.clone(), seed)?;
    let mut urls = Vec::new();
    for (url, transport, address) in listens {
        match sockets.listen(transport, address) {
            Ok(()) => urls.push(url),
            // A machine without one address family serves the other.
            Err(error) if job.urls.is_empty() && is_family_unavailable(&error) => {}
            Err(error) => {
                let error = anyhow::Error::new(error).context(format!("cannot listen on {url}"));
                return Err(error.into());
            }
        }
    }
    if urls.is_empty() {
        return Err(Failure::unsupported("neither IPv4 nor IPv6 is available"));
    }
    // Not real-time: the load depends on the clients, who must not starve this machine.
    let real_time = placement::real_time(&job.place, false);
    let placement = cpu::place_thread(job.place.cpu, real_time)?;
    ready(&urls);
    while !stop.load(Ordering::Relaxed) {
        sockets.turn(job.place.busy_poll)?;
    }
    let mut summary = summary(job, &settings, &urls, &sockets, placement);
    summary.parameters.insert("seed".to_owned(), json!(seed));
    Ok(summary)
}

/// A seed that differs between runs; it is no secret. Exact as a number in JSON.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// The settings of a node: those of its preset, changed by those given.
fn settings(parameters: &NodeSimParameters) -> NodeSettings {
    let preset = match parameters.like {
        NodePreset::Clean => NodeSettings::default(),
        NodePreset::Chung2021Best => NodeSettings::chung_2021_best(),
        NodePreset::Chung2021Worst => NodeSettings::chung_2021_worst(),
    };
    let given = parameters;
    NodeSettings {
        clock_tick: given.clock_tick.unwrap_or(preset.clock_tick),
        read_timeout: given.read_timeout.unwrap_or(preset.read_timeout),
        repeated_reads: given.repeated_reads.map_or(preset.repeated_reads, |share| share.as_f64()),
        loop_time: given.loop_time.unwrap_or(preset.loop_time),
        print_delay: given.print_delay.unwrap_or(preset.print_delay),
        service_time: given.service_time.unwrap_or(preset.service_time),
        sockets: given.sockets.map_or(preset.sockets, |sockets| sockets as usize),
    }
}

/// The sockets to open: URL, transport and address.
fn listens(urls: &[String]) -> Result<Vec<(String, Transport, SocketAddr)>, Failure> {
    let default = DEFAULT_URLS.map(str::to_owned);
    let urls = if urls.is_empty() { &default[..] } else { urls };
    let mut listens = Vec::new();
    for url in urls {
        let target = Target::with_scheme(url)
            .map_err(|error| Failure::usage(format!("invalid target: {error}")))?;
        let transport = match (target.scheme, target.scheme.spec().reflection) {
            (Scheme::TextUdp, _) => Transport::Datagram,
            (_, Reflection::Stream(StreamReply::Acknowledge)) => Transport::Stream,
            (other, _) => {
                return Err(Failure::usage(format!(
                    "a simulated node does not answer {other}://; use text+udp://ADDRESS:PORT or \
                     text+tcp://ADDRESS:PORT, or `dwell reflect {url}`"
                )));
            }
        };
        let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(|error| {
            Failure::usage(format!("cannot resolve '{}': {error}; give an address", target.host))
        })?;
        listens.extend(
            addresses.map(|address| (format!("{}://{address}", target.scheme), transport, address)),
        );
    }
    Ok(listens)
}

fn is_family_unavailable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
}

fn summary(
    job: &NodeSimJob,
    settings: &NodeSettings,
    urls: &[String],
    sockets: &NodeSockets,
    placement: Placement,
) -> Summary {
    let NodeSettings { clock_tick, read_timeout, loop_time, print_delay, service_time, .. } =
        settings;
    let parameters = [
        ("urls", json!(urls)),
        ("like", json!(job.parameters.like)),
        ("clock_tick_ns", json!(clock_tick.0)),
        ("read_timeout_ns", json!(read_timeout.0)),
        ("repeated_reads_ratio", json!(settings.repeated_reads)),
        ("loop_time", json!(loop_time)),
        ("print_delay", json!(print_delay)),
        ("service_time", json!(service_time)),
        ("sockets", json!(settings.sockets)),
        ("busy_poll", json!(job.place.busy_poll)),
    ];
    let counts = sockets.counts();
    let values = [
        ("requests", counts.requests),
        ("replies", sockets.replies),
        ("malformed", counts.malformed),
        ("limited", counts.dropped),
        ("send_failed", sockets.send_failed),
        ("not_accepted", counts.refused_connections),
    ];
    let metrics = [
        ("server_lag_ns", &sockets.server_lag),
        ("service_ns", &sockets.service),
        ("schedule_error_ns", &sockets.schedule_error),
    ];
    let measured = metrics.into_iter().filter(|(_, distribution)| distribution.count() > 0);
    Summary {
        kind: Kind::Reflect,
        target: urls.join(" "),
        parameters: by_name(parameters),
        packets: None,
        metrics: by_name(measured.map(|(name, all)| (name, all.figures().into()))),
        values: by_name(values.map(|(name, count)| (name, Some(Scalar::Count(count))))),
        stamps: Stamps {
            rx: sockets.is_stamped().then_some(TimestampSource::KernelSw),
            ..Stamps::default()
        },
        engine: "simulated node".to_owned(),
        trains: Vec::new(),
        spikes: None,
        driver: None,
        trust: Trust::default(),
        environment: environment(None, placement::record(&job.place, placement)),
    }
}

/// Prints counters and delays.
fn print(summary: &Summary) -> io::Result<()> {
    use std::io::Write;
    let mut out = io::stdout().lock();
    for (name, count) in &summary.values {
        let count = count.map_or(0.0, Scalar::as_f64);
        writeln!(out, "{name:20}{count:>12}")?;
    }
    let rows: BTreeMap<_, _> = summary.metrics.iter().collect();
    if !rows.is_empty() {
        writeln!(out, "\n{:20}{:>12}{:>12}{:>12}{:>12}", "", "min", "mean", "median", "max")?;
    }
    for (name, figures) in rows {
        let ms = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns / 1e6));
        let whole = |ns: Option<i64>| ms(ns.map(|ns| ns as f64));
        writeln!(
            out,
            "{:20}{:>12}{:>12}{:>12}{:>12} ms",
            name.trim_end_matches("_ns"),
            whole(figures.min),
            ms(figures.mean),
            whole(figures.p50),
            whole(figures.max)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dwell_units::Nanos;

    use super::*;

    #[test]
    fn given_setting_replaces_that_of_the_preset() {
        let given = NodeSimParameters {
            like: NodePreset::Chung2021Best,
            read_timeout: Some(Nanos::ZERO),
            ..NodeSimParameters::default()
        };
        let expected =
            NodeSettings { read_timeout: Nanos::ZERO, ..NodeSettings::chung_2021_best() };
        assert_eq!(settings(&given), expected);
    }

    #[test]
    fn other_protocol_is_refused_with_the_right_ones() {
        let error = listens(&["udp://127.0.0.1:7".to_owned()]).unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        assert!(error.error.to_string().contains("text+tcp://"), "{}", error.error);
    }
}
