//! The NKey of a node: an Ed25519 key pair that is made on the node and never leaves it.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use nkeys::{KeyPair, KeyPairType};

/// Maximum length of a key file in bytes; a seed has 58.
const MAX_KEY_LEN: u64 = 1_024;

/// Key of a node.
pub(crate) struct NodeKey {
    /// The secret, as text.
    pub(crate) seed: String,
    /// The public key, as `dwell hub enroll` takes it.
    pub(crate) public: String,
}

/// Makes a key and writes its seed to a new file that only its owner can read. Returns the public key.
pub(crate) fn create(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot write key {}", path.display());
    let pair = KeyPair::new_user();
    let seed = pair.seed().context("cannot encode the key")?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(cannot)?;
    file.write_all(format!("{seed}\n").as_bytes()).with_context(cannot)?;
    file.sync_all().with_context(cannot)?;
    Ok(pair.public_key())
}

/// Reads a key. A file that others can read is refused.
pub(crate) fn read(path: &Path) -> anyhow::Result<NodeKey> {
    let cannot = || format!("cannot read key {}", path.display());
    let file = OpenOptions::new().read(true).open(path).with_context(cannot)?;
    let mode = file.metadata().with_context(cannot)?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("key {} can be read by others; run chmod 600 {0}", path.display());
    }
    let mut seed = String::new();
    file.take(MAX_KEY_LEN).read_to_string(&mut seed).with_context(cannot)?;
    let seed = seed.trim().to_owned();
    let pair = KeyPair::from_seed(&seed).ok().filter(|pair| is_user(&pair.key_pair_type()));
    let Some(pair) = pair else {
        bail!("{} is not the seed of a user key; make one with dwell-uplink key", path.display());
    };
    Ok(NodeKey { seed, public: pair.public_key() })
}

fn is_user(kind: &KeyPairType) -> bool {
    matches!(kind, KeyPairType::User)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn key_file_is_secret_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.nk");
        let public = create(&path).unwrap();
        assert!(public.starts_with('U') && public.len() == 56, "{public}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap().public, public);
        assert!(create(&path).is_err(), "it exists");
        assert_eq!(read(&path).unwrap().public, public);

        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let refused = read(&path).err().unwrap().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn other_content_is_not_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.nk");
        for content in ["", "UABC", &KeyPair::new_account().seed().unwrap(), &"S".repeat(5_000)] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            assert!(read(&path).is_err(), "{content}");
        }
    }
}
