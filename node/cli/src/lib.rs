//! The commands of a node: arguments, messages and exit codes.

#![forbid(unsafe_code)]
// `eprintln!` panics when stderr is closed; all messages go through `say`.
#![warn(clippy::print_stderr)]

mod environment;
mod exit;
mod host;
mod human;
mod id;
mod nic;
mod observation_writer;
mod parameter;
mod placement;
mod progress;
mod protocols;
mod secret;
mod stop;
mod target;
mod threshold;

pub mod agent;
pub mod doctor;
pub mod examples;
pub mod lab;
pub mod load;
pub mod node_sim;
pub mod pace;
pub mod ping;
pub mod range;
pub mod reflect;
pub mod relay;
pub mod terminal;
pub mod terms;
pub mod trace;
pub mod worker;

pub use dwell_engine::protocol::Scheme;
pub use environment::build;
pub use exit::{Exit, Failure};
pub use stop::{on_continue, on_hangup, on_signal, on_signal_or_end};
pub use target::{Target, TargetError};

/// Measure where packets spend their time: the commands of a node
#[derive(Debug, clap::Parser)]
#[command(
    name = "dwell-node",
    version,
    after_help = "`help terms` explains every metric and value."
)]
pub struct NodeProgram {
    /// The command.
    #[command(subcommand)]
    pub command: NodeCommand,
}

/// The commands of a node.
#[derive(Debug, clap::Subcommand)]
pub enum NodeCommand {
    /// Send probes and measure their round-trip delay
    Ping(Box<ping::Args>),
    /// Estimate the distance of a device from round-trip times
    Range(Box<range::Args>),
    /// Answer probes
    Reflect(reflect::Args),
    /// Answer requests like a microcontroller with a coarse clock and a slow console
    NodeSim(Box<node_sim::Args>),
    /// Forward packets and measure their delay inside this node
    Relay(Box<relay::Args>),
    /// Send packet pairs or trains on schedule and measure the timing error
    Pace(Box<pace::Args>),
    /// Load this node's CPUs or the network
    Load(load::Args),
    /// Timestamp packets that pass through this node, from any sender
    Trace(trace::Args),
    /// Create and remove labs: network namespaces that act as machines
    Lab(lab::Args),
    /// Measure continuously on a schedule, and keep the results for a hub
    Agent(agent::Args),
    /// Report what this node can measure, and how precisely
    Doctor(doctor::Args),
    /// Execute jobs for a controller over standard input and output
    Worker(worker::Args),
}

impl NodeCommand {
    /// Runs the command to completion.
    pub fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::Ping(args) => ping::run(&args),
            Self::Range(args) => range::run(&args),
            Self::Reflect(args) => reflect::run(args),
            Self::NodeSim(args) => node_sim::run(&args),
            Self::Relay(args) => relay::run(&args),
            Self::Pace(args) => pace::run(&args),
            Self::Load(args) => load::run(args),
            Self::Trace(args) => trace::run(&args),
            Self::Lab(args) => lab::run(args),
            Self::Agent(args) => agent::run(&args),
            Self::Doctor(args) => doctor::run(args),
            Self::Worker(args) => worker::run(&args),
        }
    }
}

/// Writes a line to standard error with terminal control characters escaped. Ignores write
/// errors, such as EPIPE.
pub fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{}", terminal::escaped(text));
}

/// Prints a failure with its causes to standard error and returns the exit code of the process.
/// A closed standard output (EPIPE) is success.
pub fn conclude(outcome: Result<Exit, Failure>) -> std::process::ExitCode {
    let exit = outcome.unwrap_or_else(|failure| {
        if failure.is_broken_pipe() {
            return Exit::Measured;
        }
        say(&format!("dwell: {:#}", failure.error));
        failure.exit
    });
    std::process::ExitCode::from(exit as u8)
}
