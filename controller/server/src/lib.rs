//! The web controller: pages and an HTTP API about the runs, devices and experiments of a data
//! directory.
//!
//! It reads through the store. Whatever changes something is done by a command of dwell, started
//! with a vector of arguments (`command.rs`): page and terminal cannot differ, and a run goes on when
//! the server ends.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod access;
mod app;
mod assets;
mod command;
mod data;
mod deleted_devices;
mod deleted_runs;
mod error;
mod experiments;
mod fleet;
mod hub;
mod metrics;
mod pages;
mod parquet_file;

pub mod api;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

use access::{Access, Gate};
pub use access::{
    AccessConfig, Exposure, Missing, NewToken, TlsError, TlsFiles, TokenError, create_token,
    has_token,
};
pub use app::App;
pub use hub::HubSource;

/// Time for the header of a request to arrive. A connection that waits for its next request is closed
/// after this time, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);

/// Time for the handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of the header of a request in bytes.
const MAX_HEADER_LEN: usize = 32 << 10;

/// Maximum number of requests at the same time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 64;

/// Time for running requests and event streams to end after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// What the server serves, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// Data directory. It need not exist yet.
    pub data: PathBuf,
    /// The hub's data, for the pages of a fleet.
    pub hub: HubSource,
    /// The `dwell` executable, for its other commands.
    pub program: PathBuf,
    /// Who may use the server.
    pub access: AccessConfig,
    /// Writes a line for the operator.
    pub log: fn(&str),
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
    /// Certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The runtime or the socket failed.
    #[error("the web controller failed")]
    Io(#[from] std::io::Error),
}

/// Binds a listening socket.
///
/// # Errors
/// The address is in use or not allowed.
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).map_err(|source| ServeError::Listen { address, source })
}

/// Serves until SIGINT or SIGTERM. SIGHUP reads certificate and key again.
///
/// # Errors
/// Certificate or key cannot be used, or the socket or the runtime failed.
pub fn serve(config: Config, listener: TcpListener) -> Result<(), ServeError> {
    let tls = config.access.tls.as_ref().map(TlsFiles::load).transpose()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let served = runtime.block_on(run(config, listener, tls.map(RustlsConfig::from_config)));
    // Threads that still read the store are not waited for.
    runtime.shutdown_background();
    Ok(served?)
}

async fn run(
    config: Config,
    listener: TcpListener,
    tls: Option<RustlsConfig>,
) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    let log = config.log;
    let access = Access::new(&config.access, config.data.clone(), address, log);
    let handle = Handle::new();
    let signals = Signals::catch(tls.is_some())?;
    let files = config.access.tls.clone().zip(tls.clone());
    tokio::spawn(signals.follow(handle.clone(), files, log));

    let app = App::new(config);
    app.start_tasks();
    let service =
        app::router(app, Arc::new(access)).into_make_service_with_connect_info::<SocketAddr>();
    let mut server = axum_server::from_tcp(listener)?.handle(handle);
    let http = server.http_builder();
    http.http1().header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_LEN);
    http.http2()
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LEN as u32)
        .keep_alive_interval(HEADER_TIMEOUT)
        .keep_alive_timeout(HEADER_TIMEOUT);
    let server = server.first_request_timeout(HEADER_TIMEOUT);
    let scheme = if tls.is_some() { "https" } else { "http" };
    log(&format!("listening on {scheme}://{address}/"));
    match tls {
        Some(tls) => {
            let acceptor = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE_TIMEOUT);
            server.acceptor(acceptor.acceptor(Gate::new())).serve(service).await
        }
        None => server.http1_only().acceptor(Gate::new()).serve(service).await,
    }
}

/// Signals of the operator.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Left to the kernel and to `nohup` where there is no certificate to read again.
    hangup: Option<Signal>,
}

impl Signals {
    fn catch(hangup: bool) -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hangup.then(|| signal(SignalKind::hangup())).transpose()?,
        })
    }

    /// Ends the server, or reads certificate and key again.
    async fn follow(
        mut self,
        handle: Handle<SocketAddr>,
        tls: Option<(TlsFiles, RustlsConfig)>,
        log: fn(&str),
    ) {
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(signals) => signals.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.interrupt.recv() => break,
                _ = self.terminate.recv() => break,
                _ = hangup => {}
            }
            let Some((files, config)) = &tls else { break };
            match files.load() {
                Ok(loaded) => {
                    config.reload_from_config(loaded);
                    log("certificate and key were read again");
                }
                Err(error) => log(&format!("dwell: {error}; the former certificate stays in use")),
            }
        }
        handle.graceful_shutdown(Some(END_TIMEOUT));
    }
}
