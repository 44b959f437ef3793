//! `dwell device remove`: removes devices, and the node program from them.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_fleet::{FleetError, remove_deployment};
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_results::{chain, device::KnownDevice};
use dwell_store::{Store, StoreError};

use super::super::data::DataArgs;
use super::catalogue::{open, select};
use super::check::reason;

/// Arguments of `device remove`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Stored runs are kept; they still name the device. Its verdict card is lost, even if a device of this \
name is added again.")]
pub(super) struct Args {
    /// Names of devices
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Do not connect to the device; leave the node program there
    #[arg(long, conflicts_with = "force")]
    keep_files: bool,

    /// Remove the device even if the node program cannot be removed from it
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut store = open(&args.data)?;
    let selected = select(&store, &args.data, &args.names, &[])?;
    refuse_leased(&store, &selected)?;
    if !args.yes && !confirmed(args, &selected)? {
        say("nothing was removed");
        return Ok(Exit::Measured);
    }
    let stop = Arc::new(AtomicBool::new(false));
    dwell_node_cli::on_signal(&stop)?;
    let mut failed = 0;
    for known in &selected {
        // Other devices are removed even if one is unreachable.
        if let Err(failure) = remove(&mut store, known, args, &stop) {
            say(&format!("dwell: {:#}", failure.error));
            failed += 1;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
    }
    Ok(if failed == 0 { Exit::Measured } else { Exit::Failed })
}

fn refuse_leased(store: &Store, selected: &[KnownDevice]) -> Result<(), Failure> {
    let is_selected = |name: &str| selected.iter().any(|known| known.row.name == name);
    let leases = store.leases()?;
    match leases.into_iter().find(|lease| !lease.stale && is_selected(&lease.device)) {
        Some(lease) => Err(StoreError::Leased(Box::new(lease)).into()),
        None => Ok(()),
    }
}

fn confirmed(args: &Args, selected: &[KnownDevice]) -> Result<bool, Failure> {
    let names: Vec<String> = selected
        .iter()
        .map(|known| format!("{} ({})", known.device.name, known.device.destination))
        .collect();
    let files = if args.keep_files { "" } else { ", with the node program on it" };
    let what = match names.len() {
        1 => format!("device {}{files}", names.concat()),
        count => format!("{count} devices{files}: {}", names.join(", ")),
    };
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{what} would be removed; confirm with --yes")));
    }
    write!(io::stderr(), "{} will be removed. Continue? [y/N] ", terminal::escaped(&what))?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}

fn remove(
    store: &mut Store,
    known: &KnownDevice,
    args: &Args,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let name = &known.device.name;
    let mut left = "";
    if args.keep_files {
        left = "; the node program stays on it";
    } else {
        // Also a check or run that failed may have copied the program.
        match remove_deployment(&known.device, stop) {
            Ok(()) => {}
            Err(_) if stop.load(Ordering::Relaxed) => {
                return Err(anyhow::anyhow!("interrupted; device {name} is not removed").into());
            }
            Err(error @ FleetError::Leased { .. }) => return Err(error.into()),
            Err(error) if args.force => {
                say(&format!("dwell: {}", chain(&error)));
                left = "; the node program may still be on it";
            }
            Err(error) => {
                return Err(anyhow::anyhow!(
                    "device {name} is not removed: {}; --force removes it from the catalogue and leaves \
                     the node program on it",
                    reason(&known.device, &error)
                )
                .into());
            }
        }
    }
    store.remove_device(&known.row)?;
    super::super::print(&format!("removed device {name}{left}"))?;
    Ok(())
}
