//! `dwell serve`: the web controller.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use dwell_node_cli::{Exit, Failure, say};
use dwell_server::{AccessConfig, Config, Exposure, Missing, ServeError, TlsFiles};

use super::data::DataArgs;
use super::hub::DatabaseArgs;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<ServeCommand>,

    /// Address and port to listen on; port 0 takes a free one
    ///
    /// An address that other machines can reach needs a token (`dwell serve token`) and
    /// --tls-cert with --tls-key, or --insecure-http.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080", value_parser = listen_address)]
    listen: SocketAddr,
    /// Name by which browsers reach the server, besides localhost (repeatable)
    ///
    /// Requests to other names are refused, which protects from DNS rebinding.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Certificate for HTTPS, followed by those of its issuers (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM); SIGHUP reads both again
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen on an address that other machines can reach without TLS
    #[arg(long, conflicts_with = "tls_cert")]
    insecure_http: bool,
    /// Demand a token on loopback, too, even before one exists
    #[arg(long)]
    require_token: bool,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Subcommand)]
enum ServeCommand {
    /// Print a new token once; only its SHA-256 is stored
    ///
    /// As soon as a data directory has a token, its server demands it on loopback, too. A second call
    /// replaces the token and ends all sessions.
    Token(TokenArgs),
}

#[derive(Debug, clap::Args)]
struct TokenArgs {
    #[command(flatten)]
    data: DataArgs,
}

impl Args {
    /// The data directory.
    pub(super) fn data(&self) -> &DataArgs {
        match &self.command {
            Some(ServeCommand::Token(args)) => &args.data,
            None => &self.data,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    args.data().check()?;
    match &args.command {
        Some(ServeCommand::Token(args)) => make_token(&args.data.data),
        None => serve(args),
    }
}

fn make_token(data: &Path) -> Result<Exit, Failure> {
    let token = dwell_server::create_token(data).map_err(anyhow::Error::from)?;
    super::print(&token.text)?;
    say("keep this token: it is not shown again, and only its SHA-256 is stored");
    if token.replaced {
        say("the former token and all sessions are invalid now");
    }
    Ok(Exit::Measured)
}

fn serve(args: &Args) -> Result<Exit, Failure> {
    let data = &args.data.data;
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    let tls = tls.map(|(certificate, key)| TlsFiles { certificate, key });
    let exposure = Exposure {
        listen: args.listen.ip(),
        hosts: &args.host,
        tls: tls.is_some(),
        insecure_http: args.insecure_http,
        require_token: args.require_token,
        has_token: dwell_server::has_token(data),
    };
    let missing = exposure.missing();
    if !missing.is_empty() {
        return Err(Failure::usage(refusal(args, &missing)));
    }
    if let Some(files) = &tls {
        files.load().map_err(|error| Failure {
            exit: Exit::Usage,
            error: anyhow::Error::from(error).context("invalid --tls-cert or --tls-key"),
        })?;
    }
    let program = std::env::current_exe().context("cannot locate the dwell executable")?;
    let listener = dwell_server::bind(args.listen).map_err(|error| explained(args, error))?;
    if !data.exists() {
        let data = data.display();
        say(&format!("{data} does not exist yet: the first run or device creates it"));
    }
    if args.insecure_http && !args.listen.ip().is_loopback() {
        say("warning: everything is sent unencrypted, the token included");
    }
    if args.listen.ip().is_unspecified() && args.host.is_empty() {
        say("only requests to localhost are answered: add --host NAME for other names");
    }
    let access = AccessConfig { hosts: args.host.clone(), tls, require_token: args.require_token };
    let hub = args.database.source(&args.data)?;
    let config = Config { data: data.clone(), hub, program, access, log: say };
    dwell_server::serve(config, listener).map_err(anyhow::Error::from)?;
    Ok(Exit::Measured)
}

/// Says what is missing before the server may listen, and how to get it.
fn refusal(args: &Args, missing: &[Missing]) -> String {
    let data = &args.data.data;
    let mut text = format!("refusing to listen on {}", args.listen);
    for one in missing {
        match one {
            Missing::Token(reason) => {
                text +=
                    &format!(": {reason}, so a token is needed; make one with `dwell serve token");
                if data != Path::new("dwell-data") {
                    text += &format!(" --data {}", data.display());
                }
                text.push('`');
            }
            Missing::Encryption => {
                let other =
                    if missing.len() > 1 { "; also" } else { ": other machines can reach it;" };
                text += other;
                text += " add --tls-cert FILE --tls-key FILE, or --insecure-http to send everything \
                         unencrypted, the token included";
            }
        }
    }
    text
}

/// Adds what to do to the error of an address.
fn explained(args: &Args, error: ServeError) -> Failure {
    let ServeError::Listen { source, .. } = &error else {
        return anyhow::Error::from(error).into();
    };
    let advice = match source.kind() {
        ErrorKind::AddrInUse => {
            "another program uses this port; choose another with --listen ADDRESS:PORT"
        }
        ErrorKind::AddrNotAvailable => "this machine has no such address; `ip address` lists them",
        ErrorKind::PermissionDenied => "run as root or choose a port above 1023",
        _ => return anyhow::Error::from(error).into(),
    };
    anyhow::anyhow!("cannot listen on {}: {advice}", args.listen).into()
}

/// Reads `ADDRESS:PORT`, where `localhost` is 127.0.0.1.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.or_else(|| text.parse().ok()).ok_or_else(|| {
        "expected an address and a port, such as 127.0.0.1:8080, 0.0.0.0:8443 or [::1]:8080"
            .to_owned()
    })
}
