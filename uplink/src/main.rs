//! `dwell-uplink`: brings the records of an agent to a hub over a NATS bus, and receipts and schedules
//! back. It meets the agent in the files of its spool only.
//!
//! `config` and `key` read what a person provides, `spool` reads and writes the files of the agent,
//! `outbox` decides what is published, `connection` and `session` talk to servers and hubs. The formats
//! are in `dwell_rollup`.

#![forbid(unsafe_code)]

mod backoff;
mod config;
mod connection;
mod key;
mod notices;
mod outbox;
mod session;
mod spool;
mod stop;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tokio::time::sleep;

use backoff::Backoff;
use config::Config;
use connection::connect;
use notices::Notices;
use outbox::Outbox;
use session::{End, Uplink};
use spool::Spool;
use stop::Stop;

/// Exit code of a wrong command line or configuration.
const USAGE: u8 = 2;

/// Increment of the nice value: the agent's threads go first.
const NICENESS: i32 = 10;

/// Interval between attempts to use the spool.
const SPOOL_INTERVAL: Duration = Duration::from_secs(2);

/// Minimum duration of a connection after which the next one is tried soon.
const MIN_STABLE_TIME: Duration = Duration::from_secs(60);

/// Brings the records of an agent to a hub over a NATS bus.
#[derive(Debug, Parser)]
#[command(
    name = "dwell-uplink",
    version,
    after_help = "Examples:\n  dwell-uplink key --out /var/lib/dwell-agent/uplink.nk\n  dwell-uplink run --config /etc/dwell/uplink.toml"
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring records to a hub until SIGTERM or SIGINT.
    #[command(
        after_help = "Examples:\n  dwell-uplink run --config /etc/dwell/uplink.toml\n  dwell-uplink run --config ./uplink.toml"
    )]
    Run {
        /// Configuration (TOML).
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Make the key of this node, and print the public key for `dwell hub enroll`.
    #[command(
        after_help = "Examples:\n  dwell-uplink key --out /var/lib/dwell-agent/uplink.nk\n  sudo -u dwell-agent dwell-uplink key --out /var/lib/dwell-agent/uplink.nk"
    )]
    Key {
        /// New file for the secret; only its owner can read it.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match Program::parse().command {
        Command::Key { out } => key::create(&out).map(|public| println!("{public}")),
        Command::Run { config } => match Config::read(&config).and_then(|config| {
            key::read(&config.key_file)?;
            Ok(config)
        }) {
            Ok(config) => run(config),
            Err(error) => {
                eprintln!("dwell-uplink: {error:#}");
                return ExitCode::from(USAGE);
            }
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dwell-uplink: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config) -> anyhow::Result<()> {
    // Without the permission it runs as any other program.
    let _ = rustix::process::nice(NICENESS);
    // Fails if it is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // The client resolves names and reads certificates with it.
        .max_blocking_threads(1)
        .build()
        .context("cannot start")?;
    runtime.block_on(carry(config))
}

/// Carries records until the program has to stop.
async fn carry(config: Config) -> anyhow::Result<()> {
    let mut stop = Stop::new().context("cannot catch signals")?;
    let mut notices = Notices::default();
    let spool = loop {
        match Spool::open(&config.spool) {
            Ok(spool) => break spool,
            Err(error) => notices.print(format!("{error:#}")),
        }
        tokio::select! {
            () = stop.requested() => return Ok(()),
            () = sleep(SPOOL_INTERVAL) => {}
        }
    };
    let receipt_timeout = Duration::from_nanos(config.receipt_timeout.0.unsigned_abs());
    let outbox = Outbox::new(receipt_timeout);
    let mut uplink = Uplink { config, spool, outbox, notices, messages: 0, bytes: 0 };
    let mut backoff = Backoff::default();
    loop {
        let connected = tokio::select! {
            () = stop.requested() => break,
            connected = connect(&uplink.config) => connected,
        };
        match connected {
            Ok(connection) => {
                let (node, server) = (&uplink.config.node, connection.server());
                uplink.notices.print(format!("connected to {server} as node {node}"));
                let start = Instant::now();
                if session::run(&mut uplink, connection, &mut stop).await == End::Stopped {
                    break;
                }
                if start.elapsed() >= MIN_STABLE_TIME {
                    backoff.reset();
                }
            }
            Err(error) => uplink.notices.print(format!("{error:#}; trying again")),
        }
        tokio::select! {
            () = stop.requested() => break,
            () = sleep(backoff.delay()) => {}
        }
    }
    eprintln!("dwell-uplink: sent {} messages, {} bytes", uplink.messages, uplink.bytes);
    Ok(())
}
