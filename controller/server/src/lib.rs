//! The web controller: pages and an HTTP API about the runs, devices and experiments of a data
//! directory.
//!
//! It reads through the store. Whatever changes something is done by a command of dwell, started
//! with a vector of arguments ([`command`]): page and terminal cannot differ, and a run goes on when
//! the server ends.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod app;
mod assets;
mod command;
mod data;
mod deleted_runs;
mod error;
mod experiments;
mod metrics;
mod pages;

pub mod api;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use thiserror::Error;

pub use app::App;

/// What the server serves, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// Data directory. It need not exist yet.
    pub data: PathBuf,
    /// The `dwell` executable, for its other commands.
    pub program: PathBuf,
}

/// Why the server ended.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be used.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The runtime or the socket failed.
    #[error("the web controller failed")]
    Io(#[from] std::io::Error),
}

/// Binds a listening socket.
///
/// # Errors
/// The address is in use or not allowed.
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bound = TcpListener::bind(address);
    let listener = bound.map_err(|source| ServeError::Listen { address, source })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// The socket or the runtime failed.
pub fn serve(config: Config, listener: TcpListener) -> Result<(), ServeError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let app = App::new(config);
        app.start_tasks();
        let listener = listener.tap_io(limit_stalls);
        axum::serve(listener, app::router(app)).with_graceful_shutdown(signal()).await
    })?;
    Ok(())
}

/// Lets the kernel end a connection whose peer does not read, or is gone, for this long. Otherwise a
/// browser that never reads its event stream would hold it for ever.
fn limit_stalls(stream: &mut tokio::net::TcpStream) {
    const STALL_TIMEOUT: Duration = Duration::from_secs(60);
    let milliseconds = STALL_TIMEOUT.as_millis() as u32;
    // Without it the connection still works.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&*stream, milliseconds);
}

/// Ends when the process is asked to end.
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
    }
}
