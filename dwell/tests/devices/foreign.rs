//! A device with a processor of another kind: its programs run under qemu-user.

use std::path::{Path, PathBuf};

use crate::fixture::{DWELL, object, skip};
use crate::lab_devices::{DeviceLab, Peculiarity, nodes_dir};

/// Where `make nodes` builds programs.
const NODES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/nodes");

const QEMU: &str = "/usr/bin/qemu-arm-static";

/// Registers qemu-user for programs of 32-bit ARM, in the device's own table of formats: ELF,
/// 32 bits, little-endian, ET_EXEC or ET_DYN, EM_ARM.
const REGISTER: &str = r"
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf '%s' ':arm:M::\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x28\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:QEMU:F' \
    >/proc/sys/fs/binfmt_misc/register
mount -t tmpfs tmpfs /usr/local/bin
printf '#!/bin/sh\ncase $1 in -m) echo armv7l;; *) exec /usr/bin/uname $*;; esac\n' >/usr/local/bin/uname
chmod 755 /usr/local/bin/uname
";

const PLAN: &str = r#"
version = 1
name = "arm"

[topology]
roles = ["sender", "receiver"]

[ping]
from = "sender"
to = "receiver"
count = 100
rate = "100pps"
protocol = "udp"
port = 7007
"#;

#[test]
fn armv7_device_is_checked_and_measures() {
    let program = Path::new(NODES).join("armv7/dwell-node");
    if !program.exists() || !Path::new(QEMU).exists() {
        return skip("needs the armv7 program (make nodes NODES=armv7) and qemu-user-static");
    }
    let lab = DeviceLab::with(2, |number| match number {
        1 => Peculiarity {
            setup: REGISTER.replace("QEMU", QEMU),
            config: "SetEnv PATH=/usr/local/bin:/usr/bin:/bin\n".into(),
            own_users: true,
        },
        _ => Peculiarity::default(),
    });
    let Some(lab) = lab else { return };
    let nodes = lab.sandbox.path("nodes");
    for (arch, from) in [("armv7", program), (std::env::consts::ARCH, own_node())] {
        std::fs::create_dir_all(nodes.join(arch)).unwrap();
        std::fs::copy(from, nodes.join(arch).join("dwell-node")).unwrap();
    }
    let dwell = |arguments: &[&str]| {
        let mut command = lab.controller(&[&[DWELL][..], arguments].concat());
        command.env("DWELL_NODES", &nodes).output().unwrap()
    };
    let checked = object(&dwell(&["device", "check", "d1", "--json"]));
    let answer = &checked["devices"][0];
    assert_eq!(answer["state"], "answered", "{answer:#}");
    assert_eq!(answer["answer"]["arch"], "armv7l");
    for on in ["sender=d1,receiver=d2", "sender=d2,receiver=d1"] {
        let plan = lab.sandbox.write("arm.toml", PLAN);
        let output = dwell(&["run", &plan, "--on", on]);
        assert!(output.status.success(), "{output:?}");
        let shown = lab.json(&["show", "last"]);
        let packets = &shown["trials"][0]["packets"];
        assert_eq!(
            (packets["sent"].as_u64(), packets["received"].as_u64()),
            (Some(100), Some(100))
        );
        let arm = shown["nodes"].as_array().unwrap().iter().find(|it| it["device"]["name"] == "d1");
        assert_eq!(arm.unwrap()["device"]["arch"], "armv7l");
    }
    assert!(dwell(&["device", "remove", "d1", "d2", "--yes"]).status.success());
    assert_eq!(lab.devices[0].files(), Vec::<PathBuf>::new());
    lab.assert_all_idle();
}

/// The node of this machine.
fn own_node() -> PathBuf {
    nodes_dir().join(std::env::consts::ARCH).join("dwell-node")
}
