//! Runs plans in a plain chroot whose root is not a mount point: the kernel refuses to mount over
//! /etc/hosts there, so node names do not resolve.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::fixture::{DWELL, Sandbox, as_root, object, skip, stderr, stdout};

/// Copies a program and its libraries into `root`, at their own paths.
fn copy_with_libraries(program: &Path, root: &Path, to: &str) {
    let inside = |path: &str| root.join(path.trim_start_matches('/'));
    fs::create_dir_all(inside(to).parent().unwrap()).unwrap();
    fs::copy(program, inside(to)).unwrap();
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
        fs::create_dir_all(inside(library).parent().unwrap()).unwrap();
        fs::copy(library, inside(library)).unwrap();
    }
}

/// A directory with a system of dwell, iproute2 and a shell.
struct Chroot(PathBuf);

impl Chroot {
    /// Returns `None`, after reporting the reason, if it cannot be used.
    fn new(sandbox: &Sandbox) -> Option<Self> {
        if !as_root() {
            return None;
        }
        if !Command::new("unshare").args(["--mount", "true"]).status().unwrap().success() {
            skip("mount namespaces are forbidden here");
            return None;
        }
        let root = sandbox.path("root");
        copy_with_libraries(Path::new(DWELL), &root, "/bin/dwell");
        for tool in ["ip", "tc", "sh"] {
            let dirs = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
            let found = dirs.map(|dir| Path::new(dir).join(tool));
            let found = found.iter().find(|path| path.exists()).unwrap();
            copy_with_libraries(&fs::canonicalize(found).unwrap(), &root, &format!("/bin/{tool}"));
        }
        for dir in ["proc", "sys", "dev", "run", "tmp", "etc", "data"] {
            fs::create_dir(root.join(dir)).unwrap();
        }
        fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        Some(Self(root))
    }

    /// Runs a script inside, with mounts that end with it.
    fn run(&self, script: &str) -> Output {
        let outside = "set -e; mount -t proc proc $root/proc; mount --rbind /sys $root/sys\n\
                       mount --bind /dev $root/dev; exec chroot $root /bin/sh -c \"$inside\"";
        let mut command = Command::new("timeout");
        command.args(["60", "unshare", "--mount", "sh", "-c", outside]);
        command.env("root", &self.0).env("inside", script).env("DWELL_DATA", "/data");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin:/bin"));
        command.process_group(0).output().unwrap()
    }
}

#[test]
fn plan_runs_in_a_chroot_where_mounts_are_refused() {
    let sandbox = Sandbox::new();
    let Some(chroot) = Chroot::new(&sandbox) else { return };
    fs::copy(sandbox.plan(3), chroot.0.join("plan.toml")).unwrap();
    let flow = "version = 1\nname = \"flow\"\ntopology = { lab = \"line:3\" }\n[flow]\nfrom = \"n1\"\n\
                to = \"n3\"\nsize = \"500B\"\nrate = \"1Mbit/s\"\ncount = 50\nipv6 = true\n\
                [relay]\non = \"n2\"\nmode = \"translate\"\n[trials]\nrepetitions = 1\n";
    fs::write(chroot.0.join("flow.toml"), flow).unwrap();

    for (plan, trials) in [("plan", 3), ("flow", 1)] {
        let output = chroot.run(&format!("dwell run /{plan}.toml --json --quiet"));
        assert!(output.status.success(), "{output:?}");
        let end = object(&output);
        assert_eq!((&end["finished"], &end["failed"]), (&trials.into(), &0.into()), "{end}");
    }

    // Results name nodes like the plan does.
    let db = rusqlite::Connection::open(chroot.0.join("data/catalogue.sqlite")).unwrap();
    let mut select = db.prepare("SELECT DISTINCT summary ->> 'target' FROM summaries").unwrap();
    let targets = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let mut targets: Vec<String> = targets.map(Result::unwrap).collect();
    targets.sort();
    println!("{targets:?}");
    assert!(targets.contains(&"udp://n2:7100".to_owned()), "{targets:?}");
    assert!(!targets.iter().any(|target| target.contains("10.")), "{targets:?}");
}

#[test]
fn lab_exec_warns_once_where_mounts_are_refused() {
    let sandbox = Sandbox::new();
    let Some(chroot) = Chroot::new(&sandbox) else { return };
    let script = "dwell lab up line:2 --name c >&2; dwell lab exec --lab c n1 -- dwell --version\n\
                  code=$?; dwell lab down c >&2; exit $code";
    let output = chroot.run(script);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).starts_with("dwell "), "{output:?}");
    assert_eq!(stderr(&output).matches("/etc/hosts").count(), 1, "{output:?}");
}
