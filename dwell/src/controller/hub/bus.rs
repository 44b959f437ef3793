//! `dwell hub --nats URL`: records arrive over a NATS bus.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use dwell_bus::{BusAddress, BusError, BusHub, SharedStore};
use dwell_hub::Rules;
use dwell_node_cli::say;
use dwell_units::Bytes;

use super::super::data::DataArgs;
use super::nats_files::NatsFiles;

/// Options of a hub on a bus.
#[derive(Debug, clap::Args)]
pub(super) struct BusArgs {
    /// Receive records from nats-server at this address, such as tls://hub.example.org:4222; always
    /// with TLS
    #[arg(long, value_name = "URL")]
    pub(super) nats: Option<String>,

    /// Certificates that verify nats-server, PEM [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "nats")]
    nats_ca: Option<PathBuf>,

    /// Seed of the hub's key [default: nats/hub.nk in the data directory]
    #[arg(long, value_name = "FILE", requires = "nats")]
    nats_key: Option<PathBuf>,

    /// Size of the stream in which records wait for a hub [default: 4GiB; an existing one stays as it is]
    #[arg(long, value_name = "SIZE", requires = "nats", value_parser = stream_size)]
    nats_size: Option<Bytes>,
}

/// Smallest stream: it has space for the messages of some nodes.
const MIN_STREAM_BYTES: u64 = 1 << 20;

pub(super) fn stream_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: dwell_units::UnitError| error.to_string())?;
    if size.0 < MIN_STREAM_BYTES {
        return Err(format!("'{text}' is less than 1MiB"));
    }
    Ok(size)
}

/// A hub that receives on a thread of its own.
pub(super) struct Receiving(JoinHandle<Result<(), BusError>>);

impl BusArgs {
    /// Starts to receive until `stop` is set, and sets it on an error; `None` without a bus.
    pub(super) fn start(
        &self,
        data: &DataArgs,
        rules: Rules,
        store: &SharedStore,
        stop: &Arc<AtomicBool>,
    ) -> Option<Receiving> {
        let url = self.nats.clone()?;
        let files = NatsFiles::new(&data.data);
        let key = self.nats_key.clone().unwrap_or(files.hub_key);
        let hub = BusHub {
            address: BusAddress { url, ca: self.nats_ca.clone(), key },
            max_bytes: self.nats_size.map(|size| size.0),
            rules,
            store: SharedStore::clone(store),
        };
        let stop = Arc::clone(stop);
        Some(Receiving(thread::spawn(move || {
            let outcome = dwell_bus::run(&hub, &stop, &|event| say(&format!("dwell: {event}")));
            stop.store(true, Ordering::Relaxed);
            outcome
        })))
    }
}

impl Receiving {
    /// Waits until the last batch is stored.
    pub(super) fn finish(self) -> Result<(), BusError> {
        match self.0.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
