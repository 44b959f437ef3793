//! `dwell hub`: the hub of a fleet.

mod alerting;
mod alerts;
mod bus;
mod collections;
mod database;
mod embedded;
mod keys;
mod maintenance;
mod nats_config;
mod nats_files;
mod nodes;
mod samples;
mod schedule;

use dwell_node_cli::{Exit, Failure};
use jiff::Timestamp;

use super::data::DataArgs;
pub(super) use database::DatabaseArgs;

/// Arguments of `hub`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<HubCommand>,

    #[command(flatten)]
    embedded: embedded::EmbeddedArgs,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    bus: bus::BusArgs,

    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Subcommand)]
enum HubCommand {
    /// Check, apply and list schedules: who measures whom, how and when
    Schedule(schedule::Args),
    /// List the nodes that the hub knows, with what is wrong with them
    Nodes(nodes::Args),
    /// Check, apply and test alert rules, and list alerts
    Alerts(alerts::Args),
    /// Suppress alerts about a node for some time
    Maintenance(maintenance::Args),
    /// Request samples of probes, and list those that are stored
    Samples(samples::Args),
    /// Let a node connect to the bus with its key
    Enroll(keys::EnrollArgs),
    /// Replace the key of a node; both are valid for a while
    Rotate(keys::RotateArgs),
    /// Remove the keys of a node or a leaf server, and close its connections
    Revoke(keys::RevokeArgs),
    /// List the keys that nats-server accepts
    Keys(keys::KeysArgs),
    /// Write the configuration of nats-server: for the hub, or for the leaf server of a site
    NatsConfig(Box<nats_config::Args>),
}

impl Args {
    /// The data directory.
    pub(super) fn data(&self) -> &DataArgs {
        match &self.command {
            Some(HubCommand::Schedule(args)) => args.data(),
            Some(HubCommand::Nodes(args)) => &args.data,
            Some(HubCommand::Alerts(args)) => args.data(),
            Some(HubCommand::Maintenance(args)) => &args.data,
            Some(HubCommand::Samples(args)) => args.data(),
            Some(HubCommand::Enroll(args)) => &args.files.data,
            Some(HubCommand::Rotate(args)) => &args.files.data,
            Some(HubCommand::Revoke(args)) => &args.files.data,
            Some(HubCommand::Keys(args)) => &args.files.data,
            Some(HubCommand::NatsConfig(args)) => &args.files.data,
            None => &self.data,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    args.data().check()?;
    match &args.command {
        Some(HubCommand::Schedule(args)) => schedule::run(args),
        Some(HubCommand::Nodes(args)) => nodes::run(args),
        Some(HubCommand::Alerts(args)) => alerts::run(args),
        Some(HubCommand::Maintenance(args)) => maintenance::run(args),
        Some(HubCommand::Samples(args)) => samples::run(args),
        Some(HubCommand::Enroll(args)) => keys::enroll(args),
        Some(HubCommand::Rotate(args)) => keys::rotate(args),
        Some(HubCommand::Revoke(args)) => keys::revoke(args),
        Some(HubCommand::Keys(args)) => keys::list(args),
        Some(HubCommand::NatsConfig(args)) => nats_config::run(args),
        None => embedded::run(&args.embedded, &args.database, &args.bus, &args.data),
    }
}

/// CLOCK_REALTIME in nanoseconds since 1970.
fn now_ns() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
