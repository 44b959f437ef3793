//! The node programs that are copied to devices, one for each architecture.

use std::collections::BTreeMap;
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

/// Directory of the node programs of an installed package.
const INSTALLED_DIR: &str = "/usr/lib/dwell/nodes";

/// Architectures, with the machine types of uname(2) that run their programs.
const ARCHITECTURES: [(&str, &[&str]); 4] = [
    ("x86_64", &["x86_64"]),
    ("aarch64", &["aarch64", "arm64"]),
    ("armv7", &["armv7l", "armv8l"]),
    ("armv6", &["armv6l"]),
];

/// A node program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBinary {
    /// Architecture, such as `aarch64`.
    pub arch: &'static str,
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
    by_arch: BTreeMap<&'static str, NodeBinary>,
}

impl NodeBinaries {
    /// Finds the node programs. `program` is the running `dwell`. They are in `$DWELL_NODES`, in
    /// `../nodes` of the directory of `program`, or installed by a package. For the architecture of
    /// this machine, `dwell-node` beside `program` or `program` itself also qualifies.
    ///
    /// # Errors
    /// A program exists but cannot be read.
    pub fn find(program: &Path) -> io::Result<Self> {
        let beside = program.parent().unwrap_or(Path::new("."));
        let dirs = env::var_os(NODES_DIR).map(PathBuf::from).into_iter();
        let dirs: Vec<PathBuf> =
            dirs.chain([beside.join("../nodes"), INSTALLED_DIR.into()]).collect();
        Self::find_in(&dirs, env::consts::ARCH, &[beside.join(NODE_PROGRAM), program.to_owned()])
    }

    /// Finds the node programs in `dirs`, and that of `own_arch` also among `own`. The first of each
    /// architecture counts.
    fn find_in(dirs: &[PathBuf], own_arch: &str, own: &[PathBuf]) -> io::Result<Self> {
        let mut by_arch = BTreeMap::new();
        for (arch, machines) in ARCHITECTURES {
            let in_dirs = dirs.iter().map(|dir| dir.join(arch).join(NODE_PROGRAM));
            let is_own = machines.contains(&own_arch) || arch == own_arch;
            let own = own.iter().filter(|_| is_own).cloned();
            if let Some(path) = in_dirs.chain(own).find(|path| path.is_file()) {
                by_arch.insert(arch, NodeBinary::read(arch, path)?);
            }
        }
        Ok(Self { by_arch })
    }

    /// Returns the program for a machine type as `uname -m` prints it.
    pub fn of_machine(&self, machine: &str) -> Option<&NodeBinary> {
        self.by_arch.get(arch_of_machine(machine)?)
    }

    /// Returns all machine types whose program is available, with the program.
    pub(crate) fn by_machine(&self) -> impl Iterator<Item = (&'static str, &NodeBinary)> {
        let machines = ARCHITECTURES
            .into_iter()
            .flat_map(|(arch, machines)| machines.iter().map(move |machine| (arch, *machine)));
        machines.filter_map(|(arch, machine)| Some((machine, self.by_arch.get(arch)?)))
    }
}

/// Returns the architecture of programs for a machine type; `None` if dwell builds none for it.
pub(crate) fn arch_of_machine(machine: &str) -> Option<&'static str> {
    let known = ARCHITECTURES.into_iter().find(|(_, machines)| machines.contains(&machine));
    known.map(|(arch, _)| arch)
}

impl NodeBinary {
    fn read(arch: &'static str, path: PathBuf) -> io::Result<Self> {
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
        Ok(Self { arch, path, sha256, len })
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
        let own = put("bin/dwell", "own");
        let dirs = ["a", "b", "missing"].map(|name| dir.path().join(name));
        let found = NodeBinaries::find_in(&dirs, "x86_64", &[dir.path().join("no"), own]).unwrap();
        let text = |machine: &str| {
            found.of_machine(machine).map(|binary| fs::read_to_string(&binary.path).unwrap())
        };
        assert_eq!(text("arm64").as_deref(), Some("abc"));
        assert_eq!(text("armv8l").as_deref(), Some("seven"));
        assert_eq!(text("x86_64").as_deref(), Some("own"));
        assert_eq!((text("armv6l"), text("riscv64")), (None, None));
        let abc = found.of_machine("aarch64").unwrap();
        assert_eq!((abc.len, &abc.sha256[..12]), (3, "ba7816bf8f01"));
        assert!(abc.is_build("0.2.0+ba7816bf8f01"));
        assert!(!abc.is_build("0.2.0+ba7816bf8f02") && !abc.is_build("0.2.0+"));
        assert!(!abc.is_build("0.2.0"));
        let machines: Vec<_> = found.by_machine().map(|(machine, _)| machine).collect();
        assert_eq!(machines, ["x86_64", "aarch64", "arm64", "armv7l", "armv8l"]);
    }
}
