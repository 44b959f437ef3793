//! `dwell hub nats-config`: configuration of nats-server for the hub, and for leaf servers of sites.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf, absolute};

use anyhow::Context;
use dwell_bus::{
    AcceptedKey, Credential, DEFAULT_STREAM_BYTES, HubServer, HubServerSettings, LeafServer, Owner,
    PasswordHash, ServerTls, change_keys, password_file, read_keys, replace_file, seed_file,
};
use dwell_node_cli::{Exit, Failure, say};
use dwell_rollup::Name;
use dwell_units::Bytes;

use super::bus::stream_size;
use super::keys::failure;
use super::nats_files::{KeyFileArgs, NatsFiles};

/// Address and port of a server by default.
const DEFAULT_LISTEN: &str = "0.0.0.0:4222";

/// Arguments of `hub nats-config`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address and port for hubs and nodes [default: that of the last configuration of the hub's server,
    /// or 0.0.0.0:4222]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,

    /// Address and port for leaf servers of sites, or `none` [default: as in the last configuration, or
    /// none may connect]
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "leaf")]
    listen_leaf: Option<String>,

    /// Certificate chain of the server, PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: PathBuf,

    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,

    /// Size of the stream in which records wait for a hub [default: that of the last configuration, or
    /// 4GiB]
    #[arg(long, value_name = "SIZE", conflicts_with = "leaf", value_parser = stream_size)]
    nats_size: Option<Bytes>,

    /// Write the configuration of a leaf server for this site instead
    #[arg(long, value_name = "SITE", requires = "remote")]
    leaf: Option<Name>,

    /// Nodes of the site [default: those of its last configuration]
    #[arg(long, value_name = "NODE", value_delimiter = ',', requires = "leaf")]
    nodes: Vec<Name>,

    /// Leaf address of the hub's server, such as tls://hub.example.org:7422
    #[arg(long, value_name = "URL", requires = "leaf")]
    remote: Option<String>,

    /// Certificates by which the leaf server verifies the hub's server, PEM [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "leaf")]
    tls_ca: Option<PathBuf>,

    /// Directory for the configuration [default: nats, or nats/leaf-SITE, in the data directory]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    #[command(flatten)]
    pub(super) files: KeyFileArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    match (&args.leaf, &args.remote) {
        (Some(site), Some(remote)) => leaf(args, site, remote),
        _ => hub(args),
    }
}

fn hub(args: &Args) -> Result<Exit, Failure> {
    let files = NatsFiles::new(&args.files.data.data);
    let (keys, config) = (args.files.keys(), args.place(&files.dir, &files.config)?);
    let credential = Credential::Key(seed_file(&files.hub_key)?);
    let accepted = AcceptedKey { owner: Owner::Hub, nodes: BTreeSet::new(), credential };
    change_keys(&keys, |keys| keys.enroll(accepted, true)).map_err(failure)?;
    let server = HubServer {
        settings: args.settings(&config)?,
        tls: args.tls()?,
        keys: relative(&keys, &config)?,
        pid: full(&args.files.pid())?,
        store: full(&files.store)?,
    };
    replace_file(&config, &server.to_text(), 0o644)?;
    let (shown, key) = (config.display(), files.hub_key.display());
    say(&format!("dwell: wrote {shown}, {} and the hub's key {key}", keys.display()));
    if args.files.has_server() {
        args.files.reload()?;
        say("dwell: restart nats-server if an address has changed");
    } else {
        say(&format!("dwell: start the server with `nats-server -c {shown}`"));
    }
    Ok(Exit::Measured)
}

fn leaf(args: &Args, site: &Name, remote: &str) -> Result<Exit, Failure> {
    let files = NatsFiles::new(&args.files.data.data);
    let dir = files.dir.join(format!("leaf-{site}"));
    let config = args.place(&dir, &dir.join("nats-server.conf"))?;
    let dir = config.parent().unwrap_or(Path::new(".")).to_owned();
    let secret = dir.join("leaf.password");
    let (path, owner) = (args.files.keys(), Owner::Leaf(site.clone()));
    if remote.contains('@') {
        return Err(Failure::usage(
            "--remote: the URL has a user name or password; dwell creates the password of a leaf server: \
             write the URL like tls://hub.example.org:7422",
        ));
    }
    let Some(address) = remote.strip_prefix("tls://") else {
        return Err(Failure::usage(format!(
            "--remote {remote}: write it like tls://hub.example.org:7422"
        )));
    };
    let keys = read_keys(&path)?;
    let has_key = |node: &Name| keys.of(&Owner::Node(node.clone())).next().is_some();
    let mut nodes: BTreeSet<Name> = args.nodes.iter().cloned().collect();
    if nodes.is_empty() {
        nodes = keys.of(&owner).last().map(|last| last.nodes.clone()).unwrap_or_default();
        nodes.retain(has_key);
    }
    if nodes.is_empty() {
        return Err(Failure::usage(format!("--nodes: name the nodes of site {site}")));
    }
    if let Some(node) = nodes.iter().find(|node| !has_key(node)) {
        return Err(Failure::usage(format!(
            "--nodes: {node} has no key; enrol it with `dwell hub enroll {node} PUBLIC_KEY`"
        )));
    }
    let password = password_file(&secret)?;
    // The same hash for the same password: another one is another user for nats-server.
    let known = keys.of(&owner).find_map(|known| match &known.credential {
        Credential::Password(hash) if hash.is_of(&password) => Some(hash.clone()),
        _ => None,
    });
    let hash = match known {
        Some(hash) => hash,
        None => PasswordHash::of(&password).context("cannot hash a password")?,
    };
    let credential = Credential::Password(hash);
    let accepted = AcceptedKey { owner, nodes: nodes.clone(), credential };
    change_keys(&path, |keys| keys.enroll(accepted, true)).map_err(failure)?;
    // Everything that the site needs is in one directory, in which the server starts there.
    let tls = args.tls()?;
    let remote_ca = args.tls_ca.as_deref();
    let server = LeafServer {
        site: site.clone(),
        listen: args.listen.clone().unwrap_or_else(|| DEFAULT_LISTEN.to_owned()),
        tls: ServerTls {
            cert: copy(&tls.cert, &dir, "cert.pem", 0o644)?,
            key: copy(&tls.key, &dir, "key.pem", 0o600)?,
        },
        remote: address.to_owned(),
        remote_ca: remote_ca.map(|ca| copy(ca, &dir, "ca.pem", 0o644)).transpose()?,
        password,
        pid: "nats-server.pid".into(),
    };
    let nodes: Vec<Name> = nodes.into_iter().collect();
    // The file has the password.
    replace_file(&config, &server.to_text(&nodes, &keys), 0o600)?;
    let shown = dir.display();
    say(&format!("dwell: wrote {shown} with the password of the leaf server and the certificates"));
    say(
        "dwell: copy this directory to the site, and start `nats-server -c nats-server.conf` in it",
    );
    args.files.reload()?;
    Ok(Exit::Measured)
}

impl Args {
    /// Creates the directory of the configuration. Returns the file in it.
    fn place(&self, dir: &Path, config: &Path) -> Result<PathBuf, Failure> {
        let dir = self.output.as_deref().unwrap_or(dir);
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(dir.join(config.file_name().unwrap_or_default()))
    }

    /// Settings of the hub's server: those given, then those of the configuration that exists.
    fn settings(&self, config: &Path) -> Result<HubServerSettings, Failure> {
        let last = match std::fs::read_to_string(config) {
            Ok(text) => HubServerSettings::of(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(serde_json::Error::io(error)),
        };
        let last = last.with_context(|| {
            let shown = config.display();
            format!("cannot read the settings in {shown}; move it away, and give all options again")
        })?;
        let mut settings = last.unwrap_or_else(|| HubServerSettings {
            listen: DEFAULT_LISTEN.to_owned(),
            listen_leaf: None,
            max_bytes: DEFAULT_STREAM_BYTES,
        });
        if let Some(listen) = &self.listen {
            settings.listen.clone_from(listen);
        }
        if let Some(listen) = &self.listen_leaf {
            settings.listen_leaf = (listen != "none").then(|| listen.clone());
        }
        if let Some(size) = self.nats_size {
            settings.max_bytes = size.0;
        }
        Ok(settings)
    }

    fn tls(&self) -> Result<ServerTls, Failure> {
        let exists = |option: &str, path: &Path| {
            std::fs::metadata(path)
                .map_err(|error| Failure::usage(format!("{option} {}: {error}", path.display())))?;
            full(path)
        };
        let cert = exists("--tls-cert", &self.tls_cert)?;
        Ok(ServerTls { cert, key: exists("--tls-key", &self.tls_key)? })
    }
}

/// A path that does not depend on the directory in which the server starts.
fn full(path: &Path) -> Result<PathBuf, Failure> {
    Ok(absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?)
}

/// Copies a file into a directory. Returns its name there.
fn copy(from: &Path, dir: &Path, name: &str, mode: u32) -> Result<PathBuf, Failure> {
    let text =
        std::fs::read_to_string(from).with_context(|| format!("cannot read {}", from.display()))?;
    replace_file(&dir.join(name), &text, mode)?;
    Ok(name.into())
}

/// The path of `file` from the directory of `config`.
fn relative(file: &Path, config: &Path) -> Result<PathBuf, Failure> {
    let resolve = |path: &Path| -> Result<PathBuf, Failure> {
        let path = full(path)?;
        let dir = path.parent().unwrap_or(Path::new("/"));
        let dir =
            dir.canonicalize().with_context(|| format!("cannot resolve {}", dir.display()))?;
        Ok(dir.join(path.file_name().unwrap_or_default()))
    };
    let (file, config) = (resolve(file)?, resolve(config)?);
    let dir = config.parent().unwrap_or(Path::new("/"));
    let shared = dir.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    let up = dir.components().skip(shared).map(|_| Component::ParentDir);
    Ok(up.chain(file.components().skip(shared)).collect())
}
