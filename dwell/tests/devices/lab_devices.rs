//! Devices in a lab: each node has its own sshd, with its own host key, home and temporary folders.
//! The controller runs in the first node, from which all others are reached.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use dwell_io::process::{Handle, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{DWELL, Sandbox, as_root, object, skip, wait_until};

const SSHD: &str = "/usr/sbin/sshd";

const PORT: u16 = 2_222;

/// Home of the user of all devices, root.
pub(crate) const HOME: &str = "/root";

/// Folders that each device has for itself.
pub(crate) const OWN_FOLDERS: [&str; 4] = [HOME, "/tmp", "/var/tmp", "/dev/shm"];

/// Runs a command in a user namespace with the same user and group numbers. They are mapped from
/// outside, because newuidmap(1) is not on every machine.
const WITH_OWN_USERS: &str = r#"
own=$(readlink /proc/self/ns/user)
(until [ "$(readlink /proc/$$/ns/user)" != "$own" ]; do sleep 0.01; done
 echo 0 0 65536 >/proc/$$/uid_map && echo 0 0 65536 >/proc/$$/gid_map) &
exec unshare --user sh -c '
    until grep -q . /proc/self/uid_map && grep -q . /proc/self/gid_map; do sleep 0.01; done
    exec "$@"' sh "$@"
"#;

/// Devices `d1`, `d2`, ... in a lab.
pub(crate) struct DeviceLab {
    pub(crate) sandbox: Sandbox,
    /// Keys and folders of the devices.
    dir: TempDir,
    /// Where devices see this directory, which may be below a folder that each has for itself.
    inside: PathBuf,
    lab: String,
    pub(crate) devices: Vec<LabDevice>,
}

/// A node of the lab with an sshd.
pub(crate) struct LabDevice {
    /// Node of the lab.
    node: String,
    pub(crate) address: String,
    dir: PathBuf,
    own_users: bool,
    sshd: Option<Child>,
}

/// How a device differs from an ordinary one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peculiarity {
    /// Shell commands that run before sshd, in the device's own mount namespace.
    pub(crate) setup: String,
    /// Lines of sshd_config.
    pub(crate) config: String,
    /// Whether the device has a user namespace, and with it its own table of foreign program formats
    /// (binfmt_misc).
    pub(crate) own_users: bool,
}

impl DeviceLab {
    /// Creates a lab with `count` devices, which are added to the catalogue; `None` if this machine
    /// cannot.
    pub(crate) fn new(count: usize) -> Option<Self> {
        Self::with(count, |_| Peculiarity::default())
    }

    /// As [`Self::new`], with peculiar devices, by their number from 1.
    pub(crate) fn with(count: usize, of: impl Fn(usize) -> Peculiarity) -> Option<Self> {
        if !as_root() {
            return None;
        }
        if !Path::new(SSHD).exists() {
            skip("needs sshd of openssh-server");
            return None;
        }
        static LABS: AtomicU32 = AtomicU32::new(0);
        let sandbox = Sandbox::new();
        let held = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dir = held.path().to_owned();
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let lab = format!("ssh{}-{number}", std::process::id());
        let shape = format!("star:{}", count + 1);
        let up = sandbox.dwell(&["lab", "up", &shape, "--name", &lab, "--json"]);
        assert!(up.status.success(), "{up:?}");
        let inside = Path::new("/run").join(format!("dwell-{lab}"));
        fs::create_dir_all(&inside).unwrap();
        let described = object(&up);
        let nodes = described["nodes"].as_array().unwrap();
        assert!(fs::create_dir_all("/run/sshd").is_ok(), "sshd needs /run/sshd");
        generate_key(&dir.join("key"));
        let mut known_hosts = String::new();
        let mut devices = Vec::new();
        for (number, node) in (1..).zip(&nodes[1..]) {
            let peculiarity = of(number);
            let device = LabDevice {
                node: node["name"].as_str().unwrap().to_owned(),
                address: node["addresses"]["v4"].as_str().unwrap().to_owned(),
                dir: dir.join(format!("d{number}")),
                own_users: peculiarity.own_users,
                sshd: None,
            };
            known_hosts.push_str(&device.create(&inside, &peculiarity));
            devices.push(device);
        }
        fs::write(dir.join("known_hosts"), known_hosts).unwrap();
        let config = format!(
            "Host *\nUser root\nPort {PORT}\nIdentityFile {0}/key\nIdentitiesOnly yes\n\
             UserKnownHostsFile {0}/known_hosts\nGlobalKnownHostsFile /dev/null\n",
            dir.display()
        );
        fs::write(dir.join("ssh_config"), config).unwrap();
        let mut lab = Self { sandbox, dir: held, inside, lab, devices };
        for index in 0..count {
            lab.start_sshd(index);
            lab.add(&format!("d{}", index + 1), &lab.devices[index].address.clone(), &[]);
        }
        Some(lab)
    }

    /// Adds a device to the catalogue.
    pub(crate) fn add(&self, name: &str, destination: &str, options: &[&str]) {
        let added = self.dwell(&[&["device", "add", name, destination], options].concat());
        assert!(added.status.success(), "{added:?}");
    }

    /// Starts the sshd of a device, and waits until it listens.
    pub(crate) fn start_sshd(&mut self, index: usize) {
        let (sandbox, lab) = (&self.sandbox, &self.lab);
        let device = &mut self.devices[index];
        let log = device.dir.join("sshd.log");
        let (outside, inside) = (self.dir.path().display(), self.inside.display());
        let own = self.inside.join(device.dir.file_name().unwrap());
        let mut script = format!("set -e\nmount --bind {outside} {inside}\n");
        for folder in OWN_FOLDERS {
            let own = own.join(own_folder(folder));
            script.push_str(&format!("mount --bind {} {folder}\n", own.display()));
        }
        script.push_str(&fs::read_to_string(device.dir.join("setup")).unwrap());
        script.push_str(&format!("\nexec {SSHD} -D -e -f {}/sshd_config", own.display()));
        let mut command = sandbox.command(&["lab", "exec", "--lab", lab, &device.node, "--"]);
        if device.own_users {
            command.args(["sh", "-c", WITH_OWN_USERS, "sh"]);
        }
        command.args(["unshare", "--mount", "--propagation", "private", "sh", "-c", &script]);
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let mut sshd = command.spawn().unwrap();
        wait_until("sshd to listen", || {
            let log = fs::read_to_string(&log).unwrap();
            assert!(sshd.try_wait().unwrap().is_none(), "sshd ended: {log}");
            log.contains("Server listening on")
        });
        device.sshd = Some(sshd);
    }

    /// Returns the configuration of ssh(1) that reaches the devices.
    pub(crate) fn ssh_config(&self) -> PathBuf {
        self.dir.path().join("ssh_config")
    }

    /// Returns the command that runs a program in the controller's node.
    pub(crate) fn controller(&self, program: &[&str]) -> Command {
        let config = self.ssh_config();
        let mut command = self.sandbox.command(&["lab", "exec", "--lab", &self.lab, "n1", "--"]);
        command.args(program);
        command.env("DWELL_SSH_COMMAND", format!("ssh -F {}", config.display()));
        command.env("DWELL_NODES", nodes_dir());
        command.env_remove("SSH_AUTH_SOCK");
        command
    }

    /// Runs dwell in the controller's node.
    pub(crate) fn dwell(&self, arguments: &[&str]) -> Output {
        self.controller(&[&[DWELL], arguments].concat()).output().unwrap()
    }

    /// Runs dwell with `--json` in the controller's node and returns its output.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        object(&self.dwell(&[arguments, &["--json"]].concat()))
    }

    /// Runs a command in the controller's node, which must succeed.
    pub(crate) fn must(&self, program: &[&str]) {
        let output = self.controller(program).output().unwrap();
        assert!(output.status.success(), "{program:?}: {output:?}");
    }

    /// Takes the link of a device down or up: the device loses its carrier.
    pub(crate) fn set_link(&self, index: usize, up: bool) {
        // The controller's end of the link is named after the far node. Its routes go with the link.
        let link = &self.devices[index].node;
        let routes = self.dir.path().join(format!("routes-{link}"));
        let routes = routes.display();
        let script = if up {
            format!(
                "ip link set {link} up && while read -r route; do ip route replace $route dev {link} \
                 || exit; done < {routes}"
            )
        } else {
            format!("ip -4 route show dev {link} > {routes} && ip link set {link} down")
        };
        self.must(&["sh", "-c", &script]);
    }

    /// Exchanges the known host keys of two devices.
    pub(crate) fn swap_host_keys(&self, a: usize, b: usize) {
        let path = self.dir.path().join("known_hosts");
        let [a, b] = [a, b].map(|index| self.devices[index].address.as_str());
        let text = fs::read_to_string(&path).unwrap();
        let text =
            text.replace(&format!("[{a}]"), "[x]").replace(&format!("[{b}]"), &format!("[{a}]"));
        fs::write(path, text.replace("[x]", &format!("[{b}]"))).unwrap();
    }

    /// Forgets the host key of a device.
    pub(crate) fn forget_host_key(&self, index: usize) {
        let path = self.dir.path().join("known_hosts");
        let address = format!("[{}]", self.devices[index].address);
        let text = fs::read_to_string(&path).unwrap();
        let kept = text.lines().filter(|line| !line.starts_with(&address));
        fs::write(path, kept.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }

    /// Returns all files below the device's own folders as the device sees them: it may have mounted
    /// other file systems there.
    pub(crate) fn files_inside(&self, index: usize) -> Vec<PathBuf> {
        let sshd = self.devices[index].sshd.as_ref().unwrap().id();
        let folders = OWN_FOLDERS.iter().map(|folder| format!("/proc/{sshd}/root{folder}").into());
        files_below(folders.collect())
    }

    /// Returns the processes in a device's namespace, except its idle sshd.
    pub(crate) fn processes(&self, index: usize) -> Vec<(u32, String)> {
        let device = &self.devices[index];
        let netns = format!("/run/netns/dwell-{}-{}", self.lab, device.node);
        let inode = fs::metadata(&netns).unwrap_or_else(|e| panic!("{netns}: {e}")).ino();
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let inside = |pid: &u32| {
            fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|it| it.ino() == inode)
                && device.sshd.as_ref().is_none_or(|sshd| sshd.id() != *pid)
        };
        let named = |pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            (pid, String::from_utf8_lossy(&line).replace('\0', " "))
        };
        // A zombie has no command line.
        pids.filter(inside).map(named).filter(|(_, line)| !line.is_empty()).collect()
    }

    /// Kills all processes of a device.
    pub(crate) fn kill_all(&mut self, index: usize) {
        if let Some(mut sshd) = self.devices[index].sshd.take() {
            sshd.kill().unwrap();
            sshd.wait().unwrap();
        }
        for (pid, _) in self.processes(index) {
            if let Ok(process) = Handle::open(pid) {
                let _ = process.signal(Signal::Kill);
            }
        }
        wait_until("the processes of a device to end", || self.processes(index).is_empty());
    }

    /// Asserts that no process of dwell runs on a device, and that only sshd listens there.
    pub(crate) fn assert_idle(&self, index: usize) {
        wait_until("every process on the device to end", || self.processes(index).is_empty());
        let Some(sshd) = &self.devices[index].sshd else { return };
        let sockets = |table: &str| {
            let text = fs::read_to_string(format!("/proc/{}/net/{table}", sshd.id())).unwrap();
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        for table in ["udp", "udp6", "raw", "raw6", "packet", "icmp"] {
            assert_eq!(sockets(table), Vec::<String>::new(), "{table}");
        }
        const LISTEN: &str = "0A";
        for table in ["tcp", "tcp6"] {
            let listening = sockets(table)
                .into_iter()
                .filter(|line| line.split_whitespace().nth(3) == Some(LISTEN));
            let port = format!(":{PORT:04X}");
            let others: Vec<_> = listening.filter(|line| !line.contains(&port)).collect();
            assert_eq!(others, Vec::<String>::new());
        }
    }

    /// Asserts that nothing runs on any device, and nothing of the controller.
    pub(crate) fn assert_all_idle(&self) {
        (0..self.devices.len()).for_each(|index| self.assert_idle(index));
        let sshd: Vec<_> =
            self.devices.iter().filter_map(|it| Some(it.sshd.as_ref()?.id())).collect();
        wait_until("the controller's processes to end", || {
            self.sandbox.processes().iter().all(|(pid, _)| sshd.contains(pid))
        });
    }
}

impl Drop for DeviceLab {
    fn drop(&mut self) {
        for index in 0..self.devices.len() {
            if let Some(mut sshd) = self.devices[index].sshd.take() {
                let _ = sshd.kill();
                let _ = sshd.wait();
            }
        }
        let _ = fs::remove_dir(&self.inside);
        let down = self.sandbox.dwell(&["lab", "down", &self.lab]);
        if !std::thread::panicking() {
            assert!(down.status.success(), "{down:?}");
        }
    }
}

impl LabDevice {
    /// Creates keys, folders and configuration. Returns the line of known_hosts.
    fn create(&self, inside: &Path, peculiarity: &Peculiarity) -> String {
        for folder in OWN_FOLDERS {
            fs::create_dir_all(self.folder(folder)).unwrap();
        }
        for folder in &OWN_FOLDERS[1..] {
            fs::set_permissions(self.folder(folder), fs::Permissions::from_mode(0o1777)).unwrap();
        }
        generate_key(&self.dir.join("host_key"));
        fs::write(self.dir.join("setup"), &peculiarity.setup).unwrap();
        // The first of two equal keywords counts.
        let config = format!(
            "{}\nPort {PORT}\nListenAddress {}\nHostKey {}/host_key\nPidFile none\nUsePAM no\n\
             AuthorizedKeysFile {}/key.pub\nStrictModes no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin yes\nLogLevel INFO\n",
            peculiarity.config,
            self.address,
            inside.join(self.dir.file_name().unwrap()).display(),
            inside.display(),
        );
        fs::write(self.dir.join("sshd_config"), config).unwrap();
        let key = fs::read_to_string(self.dir.join("host_key.pub")).unwrap();
        format!("[{}]:{PORT} {key}", self.address)
    }

    /// Returns the place of one of the device's own folders.
    pub(crate) fn folder(&self, folder: &str) -> PathBuf {
        self.dir.join(own_folder(folder))
    }

    /// Returns all files below the device's own folders.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        files_below(OWN_FOLDERS.iter().map(|folder| self.folder(folder)).collect())
    }
}

/// Returns the name of a device's own folder in its directory.
fn own_folder(folder: &str) -> String {
    folder.trim_start_matches('/').replace('/', "-")
}

fn files_below(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            found.push(entry.path());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

fn generate_key(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(path);
    assert!(command.status().unwrap().success());
}

/// Returns the directory of node programs: the `dwell-node` that was built beside `dwell`, or `dwell`
/// itself, without symbols, because copies of debug programs are slow.
pub(crate) fn nodes_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nodes");
        let program = dir.join(std::env::consts::ARCH).join("dwell-node");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        let node = Path::new(DWELL).with_file_name("dwell-node");
        let source = if node.exists() { node } else { DWELL.into() };
        let stripped = program.with_extension(std::process::id().to_string());
        let mut strip = Command::new("strip");
        assert!(strip.arg("-o").arg(&stripped).arg(&source).status().unwrap().success());
        // Other test programs may run the old one.
        fs::rename(&stripped, &program).unwrap();
        dir
    })
}
