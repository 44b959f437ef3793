//! The keys that nats-server accepts: a file that its configuration includes. The file is the only
//! database of keys, so it is also read back.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use dwell_rollup::Name;
use nkeys::KeyPairType;
use thiserror::Error;

use crate::permissions::Permissions;

/// Maximum number of keys of one owner: two overlap while one replaces the other.
const MAX_KEYS: usize = 2;

const HEAD: &str = "\
# Written by `dwell hub enroll`, `rotate`, `revoke` and `nats-config`, which also read it: do not edit.
# nats-server includes it; `nats-server --signal reload=PIDFILE` applies changes.
users = [
";

const TAIL: &str = "]\n";

/// Public NKey of a user: 56 characters, first `U`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(String);

/// Text that is no [`PublicKey`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublicKeyError {
    /// The seed of a key.
    #[error(
        "this is a seed, which is secret and never leaves its machine; create a new one there, and \
         give its public key, which begins with U"
    )]
    Seed,
    /// Anything else.
    #[error(
        "'{0}' is not a public user key: 56 letters and digits that begin with U; copy it again from \
         `dwell-uplink key`"
    )]
    Other(String),
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        if nkeys::KeyPair::from_seed(text).is_ok() {
            return Err(PublicKeyError::Seed);
        }
        match nkeys::KeyPair::from_public_key(text) {
            Ok(key) if matches!(key.key_pair_type(), KeyPairType::User) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(PublicKeyError::Other(text.chars().take(60).collect())),
        }
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hash (bcrypt) of the password of a leaf server. nats-server 2.9 has no keys for leaf servers.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

/// Cost of the hash. A random password of 256 bits needs no slow one.
const HASH_COST: u32 = 4;

/// Length of a hash in bytes.
const HASH_LEN: usize = 60;

impl PasswordHash {
    /// Hashes a password.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn of(password: &str) -> Result<Self, bcrypt::BcryptError> {
        let parts = bcrypt::hash_with_result(password, HASH_COST)?;
        // The form that nats-server recognises.
        Ok(Self(parts.format_for_version(bcrypt::Version::TwoA)))
    }

    /// Whether this is the hash of a password.
    pub fn is_of(&self, password: &str) -> bool {
        bcrypt::verify(password, &self.0).unwrap_or(false)
    }

    fn parse(text: &str) -> Option<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"$./".contains(&byte);
        let is_hash =
            text.starts_with("$2a$") && text.len() == HASH_LEN && text.bytes().all(is_allowed);
        is_hash.then(|| Self(text.to_owned()))
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

/// By what nats-server recognises the owner of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// Key of a hub or a node.
    Key(PublicKey),
    /// Password of a leaf server.
    Password(PasswordHash),
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Password(_) => f.write_str("password"),
        }
    }
}

/// Name of the user of a leaf server.
pub(crate) fn leaf_user(site: &Name) -> String {
    format!("leaf-{site}")
}

/// Creates a user key. Returns its seed and its public key.
///
/// # Errors
/// The seed cannot be encoded.
pub fn new_user_key() -> Result<(String, PublicKey), nkeys::error::Error> {
    let pair = nkeys::KeyPair::new_user();
    Ok((pair.seed()?, PublicKey(pair.public_key())))
}

/// Returns the public key of a seed.
///
/// # Errors
/// The text is not the seed of a user.
pub fn public_key_of(seed: &str) -> Result<PublicKey, PublicKeyError> {
    match nkeys::KeyPair::from_seed(seed.trim()) {
        Ok(pair) => pair.public_key().parse(),
        Err(_) => Err(PublicKeyError::Other("the text of the key file".to_owned())),
    }
}

/// The owner of a key, which decides its permissions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// All hubs.
    Hub,
    /// A node.
    Node(Name),
    /// The leaf server of a site.
    Leaf(Name),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub => f.write_str("hub"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Leaf(site) => write!(f, "leaf {site}"),
        }
    }
}

/// A key that the server accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedKey {
    /// Owner.
    pub owner: Owner,
    /// Nodes behind a leaf server; empty for other owners.
    pub nodes: BTreeSet<Name>,
    /// Key or password.
    pub credential: Credential,
}

impl AcceptedKey {
    /// Returns the user of nats-server, in one line.
    pub(crate) fn line(&self) -> String {
        let permissions = match &self.owner {
            Owner::Hub => Permissions::of_hub(),
            Owner::Node(node) => Permissions::of_nodes([node]),
            Owner::Leaf(_) => Permissions::of_nodes(&self.nodes),
        };
        let nodes: Vec<&str> = self.nodes.iter().map(Name::as_str).collect();
        let (owner, separator) = (&self.owner, if nodes.is_empty() { "" } else { " " });
        let user = match (&self.credential, &self.owner) {
            (Credential::Key(key), _) => format!("nkey: {key}"),
            (Credential::Password(PasswordHash(hash)), Owner::Leaf(site)) => {
                format!("user: \"{}\", password: \"{hash}\"", leaf_user(site))
            }
            (Credential::Password(PasswordHash(hash)), _) => format!("password: \"{hash}\""),
        };
        format!("{{ {user}, {permissions} }} # {owner}{separator}{}", nodes.join(","))
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.rsplit_once(" # ")?.1.split(' ');
        let owner = match (words.next()?, words.next()) {
            ("hub", None) => Owner::Hub,
            ("node", Some(name)) => Owner::Node(name.parse().ok()?),
            ("leaf", Some(site)) => Owner::Leaf(site.parse().ok()?),
            _ => return None,
        };
        let nodes = words.next().map_or(Some(BTreeSet::new()), |nodes| {
            nodes.split(',').map(|node| node.parse().ok()).collect()
        })?;
        let credential = match line.strip_prefix("{ nkey: ") {
            Some(rest) => Credential::Key(rest.split(',').next()?.parse().ok()?),
            None => {
                let hash = line.split_once("password: \"")?.1.split('"').next()?;
                Credential::Password(PasswordHash::parse(hash)?)
            }
        };
        let parsed = Self { owner, nodes, credential };
        (parsed.line() == line).then_some(parsed)
    }
}

/// A change that the keys do not allow.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeysError {
    /// A line is not as dwell writes it.
    #[error(
        "line {0} is not as `dwell hub enroll` writes it; restore the file, or enrol its nodes again"
    )]
    Line(usize),
    /// The owner has a key.
    #[error("{0} is enrolled; replace its key with `dwell hub rotate`")]
    Enrolled(Owner),
    /// The owner has no key.
    #[error("{0} is not enrolled; enrol it with `dwell hub enroll`")]
    NotEnrolled(Owner),
    /// The key has another owner.
    #[error("key {key} belongs to {owner}; create one key per node, on the node")]
    Used {
        /// The key.
        key: PublicKey,
        /// Its owner.
        owner: Owner,
    },
    /// Two keys are valid.
    #[error(
        "{0} has two valid keys; end the earlier rotation with `dwell hub rotate NAME --finish`, or \
         remove one key with `dwell hub revoke NAME KEY`"
    )]
    Rotating(Owner),
    /// The owner does not have this key.
    #[error("{owner} does not have key {key}; `dwell hub keys` lists its keys")]
    OtherKey {
        /// The key.
        key: PublicKey,
        /// The owner.
        owner: Owner,
    },
}

/// All keys that the server accepts. The keys of an owner are in the order of their addition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedKeys(Vec<AcceptedKey>);

impl AcceptedKeys {
    /// Reads the file.
    ///
    /// # Errors
    /// The number of a line that dwell does not write.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let lines = text.strip_prefix(HEAD).ok_or(KeysError::Line(1))?;
        let head = HEAD.lines().count();
        let lines = lines.strip_suffix(TAIL).ok_or(KeysError::Line(text.lines().count()))?;
        let keys = lines.lines().enumerate().map(|(at, line)| {
            let key = line.strip_prefix("    ").and_then(AcceptedKey::parse);
            key.ok_or(KeysError::Line(head + at + 1))
        });
        keys.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the file.
    pub fn to_text(&self) -> String {
        let mut text = HEAD.to_owned();
        for key in &self.0 {
            text.push_str("    ");
            text.push_str(&key.line());
            text.push('\n');
        }
        text + TAIL
    }

    /// All keys.
    pub fn iter(&self) -> impl Iterator<Item = &AcceptedKey> {
        self.0.iter()
    }

    /// Keys of an owner, the newest last.
    pub fn of<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = &'a AcceptedKey> {
        self.0.iter().filter(move |key| key.owner == *owner)
    }

    /// Adds the first key of an owner, or replaces all its keys if `replace`.
    ///
    /// # Errors
    /// The owner has a key, or the key has another owner. Nothing is changed.
    pub fn enroll(&mut self, new: AcceptedKey, replace: bool) -> Result<(), KeysError> {
        if !replace && self.of(&new.owner).next().is_some() {
            return Err(KeysError::Enrolled(new.owner));
        }
        if let Credential::Key(key) = &new.credential
            && let Some(owner) = self.owner_of(key).filter(|owner| **owner != new.owner)
        {
            return Err(KeysError::Used { key: key.clone(), owner: owner.clone() });
        }
        self.0.retain(|key| key.owner != new.owner);
        self.0.push(new);
        self.0.sort_by(|a, b| a.owner.cmp(&b.owner));
        Ok(())
    }

    /// Adds a second key of an owner.
    ///
    /// # Errors
    /// The owner has no key or two keys, or the key is in use. Nothing is changed.
    pub fn rotate(&mut self, owner: &Owner, key: PublicKey) -> Result<(), KeysError> {
        let count = self.of(owner).count();
        let Some(old) = self.of(owner).last().cloned() else {
            return Err(KeysError::NotEnrolled(owner.clone()));
        };
        if let Some(owner) = self.owner_of(&key).cloned() {
            return Err(KeysError::Used { key, owner });
        }
        if count >= MAX_KEYS {
            return Err(KeysError::Rotating(owner.clone()));
        }
        self.0.push(AcceptedKey { credential: Credential::Key(key), ..old });
        // The sort is stable, so the newest key stays last.
        self.0.sort_by(|a, b| a.owner.cmp(&b.owner));
        Ok(())
    }

    fn owner_of(&self, key: &PublicKey) -> Option<&Owner> {
        let has_key =
            |it: &&AcceptedKey| matches!(&it.credential, Credential::Key(of) if of == key);
        self.0.iter().find(has_key).map(|it| &it.owner)
    }

    /// Removes all keys of an owner but the newest. Returns the number of removed keys.
    ///
    /// # Errors
    /// The owner has no key.
    pub fn finish_rotation(&mut self, owner: &Owner) -> Result<usize, KeysError> {
        let Some(newest) = self.of(owner).last().map(|newest| newest.credential.clone()) else {
            return Err(KeysError::NotEnrolled(owner.clone()));
        };
        Ok(self.remove(|key| key.owner == *owner && key.credential != newest))
    }

    /// Removes a key of an owner, or all its keys. Returns the number of removed keys.
    ///
    /// A node without a key is also removed from leaf servers, and a leaf server without nodes is removed:
    /// nats-server takes an empty list of subjects as a permission for all.
    ///
    /// # Errors
    /// The owner does not have the key, or none.
    pub fn revoke(&mut self, owner: &Owner, key: Option<&PublicKey>) -> Result<usize, KeysError> {
        if self.of(owner).next().is_none() {
            return Err(KeysError::NotEnrolled(owner.clone()));
        }
        let removed = key.cloned().map(Credential::Key);
        let is_removed = |credential: &Credential| match &removed {
            Some(removed) => removed == credential,
            None => true,
        };
        match (self.remove(|it| it.owner == *owner && is_removed(&it.credential)), key) {
            (0, Some(key)) => Err(KeysError::OtherKey { key: key.clone(), owner: owner.clone() }),
            (count, _) => {
                if let Owner::Node(node) = owner
                    && self.of(owner).next().is_none()
                {
                    self.remove_from_leaf_servers(node);
                }
                Ok(count)
            }
        }
    }

    fn remove_from_leaf_servers(&mut self, node: &Name) {
        for key in &mut self.0 {
            key.nodes.remove(node);
        }
        self.remove(|key| matches!(key.owner, Owner::Leaf(_)) && key.nodes.is_empty());
    }

    fn remove(&mut self, is_removed: impl Fn(&AcceptedKey) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(|key| !is_removed(key));
        before - self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PublicKey {
        new_user_key().unwrap().1
    }

    fn node(name: &str) -> Owner {
        Owner::Node(name.parse().unwrap())
    }

    fn accepted(owner: Owner) -> AcceptedKey {
        AcceptedKey { owner, nodes: BTreeSet::new(), credential: Credential::Key(key()) }
    }

    #[test]
    fn file_is_read_back() {
        let mut keys = AcceptedKeys::default();
        let nodes = ["a", "site-7.gw"].map(|name| name.parse().unwrap()).into();
        let hash = PasswordHash::of("secret").unwrap();
        assert!(hash.is_of("secret") && !hash.is_of("other"));
        let owner = Owner::Leaf("roof".parse().unwrap());
        let leaf = AcceptedKey { owner, nodes, credential: Credential::Password(hash) };
        for key in [leaf, accepted(node("site-7.gw")), accepted(Owner::Hub), accepted(node("a"))] {
            keys.enroll(key, false).unwrap();
        }
        keys.rotate(&node("a"), key()).unwrap();
        let text = keys.to_text();
        assert_eq!(AcceptedKeys::parse(&text), Ok(keys));
        assert!(text.contains("# node site-7.gw\n"), "{text}");
        let empty = AcceptedKeys::default();
        assert_eq!(AcceptedKeys::parse(&empty.to_text()), Ok(empty));
    }

    #[test]
    fn edited_file_is_refused_with_its_line() {
        let mut keys = AcceptedKeys::default();
        keys.enroll(accepted(node("a")), false).unwrap();
        keys.enroll(accepted(node("b")), false).unwrap();
        let text = keys.to_text();
        let wider = text.replacen("dwell.up.b", "dwell.up.>", 1);
        assert_eq!(AcceptedKeys::parse(&wider), Err(KeysError::Line(5)));
        let longer = text.replacen("]\n", "]\nmore = 1\n", 1);
        assert!(AcceptedKeys::parse(&longer).is_err());
        assert_eq!(AcceptedKeys::parse("users = []\n"), Err(KeysError::Line(1)));
    }

    #[test]
    fn rotation_overlaps_until_it_is_finished() {
        let mut keys = AcceptedKeys::default();
        assert_eq!(keys.rotate(&node("a"), key()), Err(KeysError::NotEnrolled(node("a"))));
        let first = accepted(node("a"));
        keys.enroll(first.clone(), false).unwrap();
        assert_eq!(keys.enroll(accepted(node("a")), false), Err(KeysError::Enrolled(node("a"))));
        let second = key();
        keys.rotate(&node("a"), second.clone()).unwrap();
        assert_eq!(keys.of(&node("a")).count(), 2);
        assert_eq!(keys.rotate(&node("a"), key()), Err(KeysError::Rotating(node("a"))));
        assert_eq!(keys.finish_rotation(&node("a")), Ok(1));
        assert_eq!(keys.of(&node("a")).next().unwrap().credential, Credential::Key(second));
        assert_eq!(keys.revoke(&node("a"), None), Ok(1));
        assert_eq!(keys.revoke(&node("a"), None), Err(KeysError::NotEnrolled(node("a"))));
    }

    #[test]
    fn revoked_node_is_removed_from_leaf_servers() {
        let mut keys = AcceptedKeys::default();
        for name in ["a", "b"] {
            keys.enroll(accepted(node(name)), false).unwrap();
        }
        let leaf = |site: &str| Owner::Leaf(site.parse().unwrap());
        for (site, names) in [("roof", vec!["a", "b"]), ("cellar", vec!["a"])] {
            let nodes = names.into_iter().map(|name| name.parse().unwrap()).collect();
            let credential = Credential::Password(PasswordHash::of(site).unwrap());
            keys.enroll(AcceptedKey { owner: leaf(site), nodes, credential }, false).unwrap();
        }
        let old = match &keys.of(&node("a")).next().unwrap().credential {
            Credential::Key(old) => old.clone(),
            Credential::Password(_) => unreachable!("a node has a key"),
        };
        keys.rotate(&node("a"), key()).unwrap();
        keys.revoke(&node("a"), Some(&old)).unwrap();
        assert_eq!(keys.of(&leaf("roof")).next().unwrap().nodes.len(), 2, "a has another key");
        keys.revoke(&node("a"), None).unwrap();
        let left: Vec<Name> = ["b"].map(|name| name.parse().unwrap()).into();
        assert!(keys.of(&leaf("roof")).next().unwrap().nodes.iter().eq(&left));
        assert!(!keys.to_text().contains("dwell.up.a"), "{}", keys.to_text());
        assert_eq!(keys.of(&leaf("cellar")).count(), 0, "a leaf server without nodes");
        assert_eq!(AcceptedKeys::parse(&keys.to_text()), Ok(keys));
    }

    #[test]
    fn key_of_another_owner_is_refused() {
        let mut keys = AcceptedKeys::default();
        let first = key();
        let of =
            |owner| AcceptedKey { credential: Credential::Key(first.clone()), ..accepted(owner) };
        keys.enroll(of(node("a")), false).unwrap();
        keys.enroll(accepted(node("b")), false).unwrap();
        let used = Err(KeysError::Used { key: first.clone(), owner: node("a") });
        assert_eq!(keys.enroll(of(node("c")), false), used);
        assert_eq!(keys.rotate(&node("b"), first.clone()), used);
        let other = Err(KeysError::OtherKey { key: first.clone(), owner: node("b") });
        assert_eq!(keys.revoke(&node("b"), Some(&first)), other);
    }

    #[test]
    fn seeds_and_keys_of_servers_are_no_user_keys() {
        let seed = new_user_key().unwrap().0;
        assert_eq!(seed.parse::<PublicKey>(), Err(PublicKeyError::Seed));
        let server = nkeys::KeyPair::new_server().public_key();
        assert!(server.parse::<PublicKey>().is_err());
        let mut wrong = key().to_string();
        wrong.replace_range(10..11, if &wrong[10..11] == "A" { "B" } else { "A" });
        assert!(wrong.parse::<PublicKey>().is_err(), "checksum");
        assert!("U".parse::<PublicKey>().is_err());
    }
}
