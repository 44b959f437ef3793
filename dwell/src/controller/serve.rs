//! `dwell serve`: the web controller.

use std::net::SocketAddr;

use anyhow::Context;
use dwell_node_cli::{Exit, Failure, say};
use dwell_server::Config;

use super::data::DataArgs;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let program = std::env::current_exe().context("cannot locate the dwell executable")?;
    let listener = dwell_server::bind(args.listen)?;
    let address = listener.local_addr()?;
    say(&format!("listening on http://{address}/"));
    dwell_server::serve(Config { data: args.data.data.clone(), program }, listener)?;
    Ok(Exit::Measured)
}
