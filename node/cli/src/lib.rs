//! The commands that run on a node: their arguments, their talk, their exit codes.

#![forbid(unsafe_code)]
// `eprintln!` panics when stderr is closed; all messages go through `say`.
#![warn(clippy::print_stderr)]

mod environment;
mod exit;
mod host;
mod human;
mod id;
mod nic;
mod passages;
mod place;
mod progress;
mod secret;
mod stop;
mod target;
mod threshold;

pub mod doctor;
pub mod examples;
pub mod lab;
pub mod load;
pub mod pace;
pub mod ping;
pub mod reflect;
pub mod relay;
pub mod serve;
pub mod terminal;
pub mod terms;
pub mod trace;

pub use environment::build;
pub use exit::{Exit, Failure};
pub use id::IdChoice;
pub use place::{PlaceArgs, SchedulingChoice};
pub use stop::{on_hangup, on_signal};
pub use target::{Scheme, Target, TargetError};

/// Measure how long packets stay, and where: the commands that run on a node
#[derive(Debug, clap::Parser)]
#[command(
    name = "dwell-node",
    version,
    after_help = "`help terms` explains every metric and value."
)]
pub struct NodeProgram {
    /// What to do.
    #[command(subcommand)]
    pub command: NodeCommand,
}

/// A command of a node.
#[derive(Debug, clap::Subcommand)]
pub enum NodeCommand {
    /// Send probes and measure how long their replies take
    Ping(Box<ping::Args>),
    /// Answer probes
    Reflect(reflect::Args),
    /// Send on what comes, and say how long it stayed and where
    Relay(Box<relay::Args>),
    /// Send pairs or trains of packets on time, and say how punctual they were
    Pace(Box<pace::Args>),
    /// Put load on this node or on the network
    Load(load::Args),
    /// Stamp packets that pass through this node, whoever sends them
    Trace(trace::Args),
    /// Make and remove network namespaces that stand for machines
    Lab(lab::Args),
    /// Say what this node can measure, and how well
    Doctor(doctor::Args),
    /// Work for a controller, which speaks on standard input
    Serve(serve::Args),
}

impl NodeCommand {
    /// Runs the command to its end.
    pub fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::Ping(args) => ping::run(&args),
            Self::Reflect(args) => reflect::run(args),
            Self::Relay(args) => relay::run(&args),
            Self::Pace(args) => pace::run(&args),
            Self::Load(args) => load::run(args),
            Self::Trace(args) => trace::run(&args),
            Self::Lab(args) => lab::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Serve(args) => serve::run(&args),
        }
    }
}

/// Writes a line to standard error. Write errors, such as EPIPE after the reader has gone, are
/// ignored. Terminal control characters are escaped.
pub fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{}", terminal::escaped(text));
}

/// Prints a failure to standard error, cause by cause, and turns any outcome into the process's
/// exit code. A reader that closed our standard output early had what it wanted: success.
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
