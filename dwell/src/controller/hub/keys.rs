//! `dwell hub enroll`, `rotate`, `revoke` and `keys`: which keys nats-server accepts.

use std::collections::BTreeSet;
use std::io::Write;

use dwell_bus::{
    AcceptedKey, AcceptedKeys, Credential, KeyFileError, KeysError, Owner, PublicKey, change_keys,
    read_keys,
};
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_report::Table;
use dwell_rollup::Name;

use super::super::show::print_rows;
use super::nats_files::KeyFileArgs;

/// Arguments of `hub enroll`.
#[derive(Debug, clap::Args)]
pub(super) struct EnrollArgs {
    /// Name of the node, as in the configuration of its agent
    #[arg(value_name = "NAME")]
    node: Name,

    /// Public key that `dwell-uplink key` printed on the node
    #[arg(value_name = "PUBLIC_KEY")]
    key: PublicKey,

    #[command(flatten)]
    pub(super) files: KeyFileArgs,
}

/// Arguments of `hub rotate`.
#[derive(Debug, clap::Args)]
pub(super) struct RotateArgs {
    /// Name of the node
    #[arg(value_name = "NAME")]
    node: Name,

    /// New public key; the old one stays valid until --finish
    #[arg(value_name = "NEW_KEY", required_unless_present = "finish")]
    key: Option<PublicKey>,

    /// Remove the old key, when the node uses the new one
    #[arg(long, conflicts_with = "key")]
    finish: bool,

    #[command(flatten)]
    pub(super) files: KeyFileArgs,
}

/// Arguments of `hub revoke`.
#[derive(Debug, clap::Args)]
pub(super) struct RevokeArgs {
    /// Name of the node, or leaf:SITE
    #[arg(value_name = "NAME", value_parser = owner)]
    owner: Owner,

    /// One of its keys [default: all]
    #[arg(value_name = "KEY")]
    key: Option<PublicKey>,

    #[command(flatten)]
    pub(super) files: KeyFileArgs,
}

/// Arguments of `hub keys`.
#[derive(Debug, clap::Args)]
pub(super) struct KeysArgs {
    #[command(flatten)]
    pub(super) files: KeyFileArgs,
}

/// Prefix of the name of a leaf server.
const LEAF: &str = "leaf:";

fn owner(text: &str) -> Result<Owner, String> {
    let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
    match text.strip_prefix(LEAF) {
        Some(site) => name(site).map(Owner::Leaf),
        None => name(text).map(Owner::Node),
    }
}

/// A change that the keys do not allow is a usage error.
pub(super) fn failure(error: KeyFileError) -> Failure {
    match error {
        KeyFileError::Keys { source: KeysError::Line(_), .. } => error.into(),
        KeyFileError::Keys { source, .. } => Failure::usage(source.to_string()),
        error => error.into(),
    }
}

/// Adds the first key of a node.
pub(super) fn enroll(args: &EnrollArgs) -> Result<Exit, Failure> {
    let owner = Owner::Node(args.node.clone());
    let credential = Credential::Key(args.key.clone());
    let key = AcceptedKey { owner, nodes: BTreeSet::new(), credential };
    change_keys(&args.files.keys(), |keys| keys.enroll(key, false)).map_err(failure)?;
    say(&format!("dwell: {} is enrolled", args.node));
    name_leaf_servers(&args.files, &args.node)?;
    args.files.reload()?;
    Ok(Exit::Measured)
}

/// Adds a second key, or ends the rotation.
pub(super) fn rotate(args: &RotateArgs) -> Result<Exit, Failure> {
    let (node, owner) = (&args.node, Owner::Node(args.node.clone()));
    match &args.key {
        Some(key) => {
            change_keys(&args.files.keys(), |keys| keys.rotate(&owner, key.clone()))
                .map_err(failure)?;
            say(&format!(
                "dwell: both keys of {node} are valid; give the node the new one, then run `dwell hub \
                 rotate {node} --finish`"
            ));
        }
        None => {
            let removed = change_keys(&args.files.keys(), |keys| keys.finish_rotation(&owner))
                .map_err(failure)?;
            say(&format!("dwell: removed {removed} old keys of {node}"));
        }
    }
    name_leaf_servers(&args.files, node)?;
    args.files.reload()?;
    Ok(Exit::Measured)
}

/// Removes keys, whose connections the server closes.
///
/// # Errors
/// Among others, no server was signalled to read the keys.
pub(super) fn revoke(args: &RevokeArgs) -> Result<Exit, Failure> {
    let change = |keys: &mut AcceptedKeys| {
        let sites = match &args.owner {
            Owner::Node(node) => sites_of(keys, node),
            Owner::Leaf(_) | Owner::Hub => BTreeSet::new(),
        };
        Ok((keys.revoke(&args.owner, args.key.as_ref())?, sites))
    };
    let (removed, sites) = change_keys(&args.files.keys(), change).map_err(failure)?;
    say(&format!("dwell: revoked {removed} keys of {}", args.owner));
    match &args.owner {
        Owner::Node(node) => {
            let keys = read_keys(&args.files.keys())?;
            for site in sites {
                let has_nodes = keys.of(&Owner::Leaf(site.clone())).next().is_some();
                say(&revoked_text(node, &site, has_nodes));
            }
        }
        Owner::Leaf(_) | Owner::Hub => {
            say("dwell: restart nats-server to close an open connection of the leaf server");
        }
    }
    args.files.reload_without_revoked()?;
    Ok(Exit::Measured)
}

/// Returns the sites of the leaf servers that have the keys of a node.
fn sites_of(keys: &AcceptedKeys, node: &Name) -> BTreeSet<Name> {
    let of_node = keys.iter().filter(|key| key.nodes.contains(node));
    let sites = of_node.filter_map(|key| match &key.owner {
        Owner::Leaf(site) => Some(site.clone()),
        Owner::Hub | Owner::Node(_) => None,
    });
    sites.collect()
}

/// Prints the leaf servers that need the new keys of a node, too.
fn name_leaf_servers(files: &KeyFileArgs, node: &Name) -> Result<(), Failure> {
    for site in sites_of(&read_keys(&files.keys())?, node) {
        say(&format!(
            "dwell: {node} connects to the leaf server of {site}, too: write its configuration again with \
             `dwell hub nats-config --leaf {site}` and its other options but --nodes, and reload that server"
        ));
    }
    Ok(())
}

/// Describes how the leaf server of a site loses a revoked key.
fn revoked_text(node: &Name, site: &Name, has_nodes: bool) -> String {
    if has_nodes {
        format!(
            "dwell: the leaf server of {site} accepts revoked keys of {node} until you write its \
             configuration again with `dwell hub nats-config --leaf {site}` and its other options but \
             --nodes, and restart that server"
        )
    } else {
        format!("dwell: the leaf server of {site} has no other node and is removed: stop it")
    }
}

/// Prints all keys.
pub(super) fn list(args: &KeysArgs) -> Result<Exit, Failure> {
    let keys = read_keys(&args.files.keys())?;
    let row = |key: &AcceptedKey| {
        let newest = keys.of(&key.owner).last();
        let is_old = newest.is_some_and(|newest| newest.credential != key.credential);
        let nodes: Vec<&str> = key.nodes.iter().map(Name::as_str).collect();
        let name = match &key.owner {
            Owner::Hub => "hub".to_owned(),
            Owner::Node(node) => node.to_string(),
            Owner::Leaf(site) => format!("{LEAF}{site}"),
        };
        let kind = match &key.owner {
            Owner::Hub => "hub",
            Owner::Node(_) => "node",
            Owner::Leaf(_) => "leaf server",
        };
        let state = if is_old { "until --finish" } else { "-" };
        vec![name, kind.to_owned(), key.credential.to_string(), state.to_owned(), nodes.join(",")]
    };
    let columns = ["name", "of", "key", "replaced", "nodes"].map(str::to_owned).to_vec();
    let mut out = terminal::buffered_stdout();
    print_rows(&mut out, &Table { columns, rows: keys.iter().map(row).collect() })?;
    out.flush()?;
    Ok(Exit::Measured)
}
