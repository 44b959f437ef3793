//! The node programs that are copied to devices, one for each architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Environment variable with the directory of node programs, laid out as `ARCH/dwell-node`.
pub const NODES_DIR: &str = "DWELL_NODES";

/// Name of the node program.
const NODE_PROGRAM: &str = "dwell-node";

/// Architectures that `make nodes` builds for, with the machine types of uname(2) that run their
/// programs. A program of another architecture is named after its only machine type.
const ARCHITECTURES: [(&str, &[&str]); 4] = [
    ("x86_64", &["x86_64"]),
    ("aarch64", &["aarch64", "arm64"]),
    ("armv7", &["armv7l", "armv8l"]),
    ("armv6", &["armv6l"]),
];

/// A node program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBinary {
    /// File.
    pub path: PathBuf,
    /// SHA-256 of the file, as 64 hexadecimal digits.
    pub sha256: String,
    /// Length of the file in bytes.
    pub len: u64,
}

/// The available node programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeBinaries {
    by_arch: BTreeMap<String, NodeBinary>,
}

impl NodeBinaries {
    /// Finds the node programs. `program` is the running `dwell`. They are in `$DWELL_NODES`, or,
    /// relative to the directory of `program`, in `../nodes` (the build) or `../lib/dwell/nodes`
    /// (installed). For the architecture of this machine, `dwell-node` beside `program` or `program`
    /// itself also qualifies.
    ///
    /// # Errors
    /// A program exists but cannot be read.
    pub fn find(program: &Path) -> io::Result<Self> {
        let beside = program.parent().unwrap_or(Path::new("."));
        let dirs = env::var_os(NODES_DIR).map(PathBuf::from).into_iter();
        let dirs: Vec<PathBuf> =
            dirs.chain(["../nodes", "../lib/dwell/nodes"].map(|dir| beside.join(dir))).collect();
        Self::find_in(&dirs, env::consts::ARCH, &[beside.join(NODE_PROGRAM), program.to_owned()])
    }

    /// Finds the node programs in `dirs`, and that of `own_arch` also among `own`. The first of each
    /// architecture counts.
    fn find_in(dirs: &[PathBuf], own_arch: &str, own: &[PathBuf]) -> io::Result<Self> {
        let own_arch = arch_of_machine(own_arch).unwrap_or(own_arch);
        let folders = dirs.iter().filter_map(|dir| dir.read_dir().ok()).flatten().flatten();
        let names = folders.filter_map(|folder| folder.file_name().into_string().ok());
        let archs: BTreeSet<String> = names.chain([own_arch.to_owned()]).collect();
        let mut by_arch = BTreeMap::new();
        for arch in archs {
            let in_dirs = dirs.iter().map(|dir| dir.join(&arch).join(NODE_PROGRAM));
            let own = own.iter().filter(|_| arch == own_arch).cloned();
            if let Some(path) = in_dirs.chain(own).find(|path| path.is_file()) {
                by_arch.insert(arch, NodeBinary::read(path)?);
            }
        }
        Ok(Self { by_arch })
    }

    /// Returns the program for a machine type as `uname -m` prints it.
    pub fn of_machine(&self, machine: &str) -> Option<&NodeBinary> {
        self.by_arch.get(arch_of_machine(machine).unwrap_or(machine))
    }

    /// Returns all machine types whose program is available, with the program.
    pub(crate) fn by_machine(&self) -> impl Iterator<Item = (&str, &NodeBinary)> {
        self.by_arch.iter().flat_map(|(arch, binary)| {
            let known = ARCHITECTURES.into_iter().find(|(known, _)| known == arch);
            let machines = known.map_or(vec![arch.as_str()], |(_, machines)| machines.to_vec());
            machines.into_iter().map(move |machine| (machine, binary))
        })
    }
}

/// Returns the architecture of programs for a machine type; `None` if `make nodes` builds none.
pub(crate) fn arch_of_machine(machine: &str) -> Option<&'static str> {
    let known = ARCHITECTURES.into_iter().find(|(_, machines)| machines.contains(&machine));
    known.map(|(arch, _)| arch)
}

impl NodeBinary {
    fn read(path: PathBuf) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
        };
        let mut file = File::open(&path).map_err(named)?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        let mut len = 0;
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(&buffer[..read]);
                    len += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(named(error)),
            }
        }
        let mut sha256 = String::with_capacity(64);
        for byte in hasher.finalize() {
            let _ = write!(sha256, "{byte:02x}");
        }
        Ok(Self { path, sha256, len })
    }

    /// Returns the build as a node reports it: `VERSION+HASH`. Programs are built with dwell.
    pub(crate) fn build(&self) -> String {
        format!("{}+{}", env!("CARGO_PKG_VERSION"), &self.sha256[..MIN_HASH_LEN])
    }

    /// Whether `build`, as a node reports it (`VERSION+HASH`), is of this program.
    pub(crate) fn is_build(&self, build: &str) -> bool {
        build
            .split_once('+')
            .is_some_and(|(_, hash)| hash.len() >= MIN_HASH_LEN && self.sha256.starts_with(hash))
    }
}

/// Minimum length of the hash in a build in digits.
const MIN_HASH_LEN: usize = 12;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn first_program_of_each_architecture_counts() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        put("a/aarch64/dwell-node", "abc");
        put("b/aarch64/dwell-node", "later");
        put("b/armv7/dwell-node", "seven");
        put("b/riscv64/dwell-node", "risc");
        put("b/README", "no folder");
        let own = put("bin/dwell", "own");
        let dirs = ["a", "b", "missing"].map(|name| dir.path().join(name));
        let found = NodeBinaries::find_in(&dirs, "x86_64", &[dir.path().join("no"), own]).unwrap();
        let text = |machine: &str| {
            found.of_machine(machine).map(|binary| fs::read_to_string(&binary.path).unwrap())
        };
        assert_eq!(text("arm64").as_deref(), Some("abc"));
        assert_eq!(text("armv8l").as_deref(), Some("seven"));
        assert_eq!(text("x86_64").as_deref(), Some("own"));
        assert_eq!(text("riscv64").as_deref(), Some("risc"));
        assert_eq!((text("armv6l"), text("mips")), (None, None));
        let abc = found.of_machine("aarch64").unwrap();
        assert_eq!((abc.len, &abc.sha256[..12]), (3, "ba7816bf8f01"));
        assert!(abc.is_build("0.2.0+ba7816bf8f01"));
        assert!(!abc.is_build("0.2.0+ba7816bf8f02") && !abc.is_build("0.2.0+"));
        assert!(!abc.is_build("0.2.0"));
        let machines: Vec<_> = found.by_machine().map(|(machine, _)| machine).collect();
        assert_eq!(machines, ["aarch64", "arm64", "armv7l", "armv8l", "riscv64", "x86_64"]);
    }
}
