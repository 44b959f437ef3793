//! `dwell device add`: adds a device.

use dwell_fleet::Device;
use dwell_node_cli::{Exit, Failure, say};
use dwell_results::device::KnownDevice;
use dwell_store::{Store, StoreError};

use super::super::data::DataArgs;
use super::catalogue::{all, find};
use super::check;
use super::description::DescriptionArgs;

/// Arguments of `device add`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the device: letters, digits, '-', '_' and '.'
    name: String,

    /// Destination of ssh.
    #[arg(
        value_name = "DESTINATION",
        help = "How ssh reaches it: [USER@]HOST[:PORT], or a name from ~/.ssh/config"
    )]
    destination: String,

    #[command(flatten)]
    description: DescriptionArgs,

    /// Check the device at once
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut device = Device::new(&args.name, &args.destination)
        .map_err(|error| Failure::usage(error.to_string()))?;
    args.description.apply(&mut device);
    let mut store = args.data.open()?;
    let others = all(&store)?;
    match store.add_device(&device.name, &description(&device)?) {
        Err(StoreError::DeviceExists(name)) => return Err(exists(&store, &name)),
        added => added?,
    }
    for other in same_destination(&others, &device) {
        let (name, destination) = (&other.device.name, &device.destination);
        say(&format!("dwell: device {name} has the same destination {destination}"));
    }
    let name = &device.name;
    if !args.check {
        super::super::print(&format!("added device {name}; `dwell device check {name}` tries it"))?;
        return Ok(Exit::Measured);
    }
    super::super::print(&format!("added device {name}"))?;
    let known = find(&store, name)?;
    check::check(&mut store, &[known], false)
}

/// Returns the description as JSON.
pub(super) fn description(device: &Device) -> Result<String, serde_json::Error> {
    serde_json::to_string(device)
}

fn same_destination<'a>(
    others: &'a [KnownDevice],
    device: &'a Device,
) -> impl Iterator<Item = &'a KnownDevice> {
    others.iter().filter(|other| other.device.destination == device.destination)
}

/// The failure of a name that is in use.
pub(super) fn exists(store: &Store, name: &str) -> Failure {
    let other = find(store, name).map(|known| format!(" ({})", known.device.destination));
    let other = other.unwrap_or_default();
    Failure::usage(format!(
        "there is already a device '{name}'{other}; change it with `dwell device edit {name}`, or choose \
         another name"
    ))
}
