//! `dwell load`: puts load on this node or on the network, and says what was really put.

mod cpu;
mod sink;
mod traffic;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};

use dwell_record::{Kind, Placement, Scalar, Stamps, Summary, Trust};
use serde_json::Value;

use crate::environment::environment;
use crate::{Exit, Failure, Scheme, Target};

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    load: Load,
}

#[derive(Debug, clap::Subcommand)]
enum Load {
    /// Burn CPU time at a level
    Cpu(cpu::Args),
    /// Send UDP traffic at a rate
    Traffic(traffic::Args),
    /// Receive and count the traffic
    Sink(sink::Args),
}

/// Runs the command. A load is no measurement: being stopped is its normal end.
pub fn run(args: Args) -> Result<Exit, Failure> {
    match args.load {
        Load::Cpu(args) => cpu::run(&args),
        Load::Traffic(args) => traffic::run(&args),
        Load::Sink(args) => sink::run(&args),
    }
}

/// Prints the result: as one object, or as lines for people.
fn conclude(
    json: bool,
    target: String,
    engine: &str,
    parameters: &[(&str, Value)],
    values: &[(&str, Scalar)],
    warnings: Vec<String>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !json {
        for (name, value) in values {
            match value {
                Scalar::Count(count) => writeln!(out, "{name:24}{count:>16}")?,
                Scalar::Real(real) => writeln!(out, "{name:24}{real:>20.3}")?,
            }
        }
        return warnings.iter().try_for_each(|warning| writeln!(out, "note: {warning}"));
    }
    let named = |(name, value): &(&str, Value)| ((*name).to_owned(), value.clone());
    let summary = Summary {
        kind: Kind::Load,
        target,
        parameters: parameters.iter().map(named).collect(),
        packets: None,
        metrics: BTreeMap::new(),
        values: values.iter().map(|(name, v)| ((*name).to_owned(), Some(*v))).collect(),
        stamps: Stamps::default(),
        engine: engine.to_owned(),
        trust: Trust { warnings, ..Trust::default() },
        environment: environment(None, Placement::default()),
    };
    out.write_all(summary.to_json().as_bytes())
}

/// The addresses of a `udp://` URL.
fn udp_addresses(url: &str) -> Result<Vec<SocketAddr>, Failure> {
    let target = Target::with_scheme(url)
        .map_err(|error| Failure::usage(format!("invalid target: {error}")))?;
    if target.scheme != Scheme::Udp {
        return Err(Failure::usage(format!("'{url}': traffic is udp:// only")));
    }
    let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(|error| {
        Failure::usage(format!("cannot resolve '{}': {error}; give an address", target.host))
    })?;
    Ok(addresses.collect())
}
