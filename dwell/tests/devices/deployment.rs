//! The node program on devices: copied once, replaced, removed; and devices that refuse it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::lab_devices::{DeviceLab, HOME, OWN_FOLDERS, Peculiarity, nodes_dir};

/// Returns the result of the check of a device.
fn result<'a>(checked: &'a Value, name: &str) -> &'a Value {
    let devices = checked["devices"].as_array().unwrap();
    devices.iter().find(|device| device["name"] == name).unwrap()
}

fn names(files: &[PathBuf]) -> Vec<String> {
    files.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

/// Folder of the node program where nothing prevents it.
fn cache() -> String {
    format!("{HOME}/.cache/dwell")
}

#[test]
fn program_is_copied_once_replaced_and_removed() {
    let Some(lab) = DeviceLab::new(1) else { return };
    let check = || {
        let checked = lab.json(&["device", "check"]);
        assert_eq!(result(&checked, "d1")["state"], "answered", "{checked:#}");
        result(&checked, "d1")["answer"].clone()
    };
    let first = check();
    assert!(first["uploaded_bytes"].as_u64().unwrap() > 100_000, "{first:#}");
    assert_eq!(first["dir"], cache());
    assert_eq!(first["doctor"]["schema"], "dwell.doctor/1");
    assert_eq!(check()["uploaded_bytes"], 0);

    // A power failure may leave a file without its contents.
    let program = Path::new(first["program"].as_str().unwrap()).file_name().unwrap();
    let mut files = lab.devices[0].files().into_iter();
    let program = files.find(|path| path.file_name() == Some(program)).unwrap();
    for len in [0, 1_000] {
        File::options().write(true).open(&program).unwrap().set_len(len).unwrap();
        assert_eq!(check()["uploaded_bytes"], first["uploaded_bytes"], "{len}");
    }

    // Another program: a byte after its end changes only its hash.
    let other = lab.sandbox.path("nodes");
    let arch = other.join(std::env::consts::ARCH);
    fs::create_dir_all(&arch).unwrap();
    let own = nodes_dir().join(std::env::consts::ARCH).join("dwell-node");
    let mut program = fs::read(own).unwrap();
    program.push(0);
    fs::write(arch.join("dwell-node"), program).unwrap();
    let mut command = lab.controller(&[crate::fixture::DWELL, "device", "check", "--json"]);
    let checked = crate::fixture::object(&command.env("DWELL_NODES", &other).output().unwrap());
    let second = &result(&checked, "d1")["answer"];
    assert!(second["uploaded_bytes"].as_u64().unwrap() > 100_000, "{second:#}");
    assert_ne!(second["build"], first["build"]);
    let files = names(&lab.devices[0].files());
    let programs: Vec<_> = files.iter().filter(|name| name.starts_with("dwell-node-")).collect();
    let program = Path::new(second["program"].as_str().unwrap()).file_name().unwrap();
    assert_eq!(programs, [program.to_str().unwrap()], "{files:?}");

    let removed = lab.dwell(&["device", "remove", "d1", "--yes"]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(lab.devices[0].files(), Vec::<PathBuf>::new());
    lab.assert_all_idle();
}

/// A PATH of sshd whose first folder has this program.
fn with_program(name: &str, text: &str) -> Peculiarity {
    let setup = format!(
        "mkdir -p /var/tmp/bin\ncat > /var/tmp/bin/{name} <<'X'\n#!/bin/sh\n{text}\nX\n\
         chmod 755 /var/tmp/bin/{name}\n"
    );
    let config = "SetEnv PATH=/var/tmp/bin:/usr/sbin:/usr/bin:/sbin:/bin\n".to_owned();
    Peculiarity { setup, config, own_users: false }
}

fn with_setup(setup: &str) -> Peculiarity {
    Peculiarity { setup: setup.to_owned(), ..Default::default() }
}

#[test]
fn each_refusal_of_a_device_has_its_message() {
    const SMALL: &str = "mount -t tmpfs -o size=256k,mode=1777 tmpfs";
    const NOEXEC: &str = "mount -t tmpfs -o noexec,mode=1777 tmpfs";
    let everywhere =
        |mount: &str| with_setup(&OWN_FOLDERS.map(|folder| format!("{mount} {folder}\n")).concat());
    let lab = DeviceLab::with(12, |number| match number {
        2 => Peculiarity { config: "AuthorizedKeysFile none\n".into(), ..Default::default() },
        3 => with_setup(&format!("mount -o remount,bind,ro {HOME}\n")),
        4 => with_setup(&format!("{NOEXEC} {HOME}\n")),
        5 => everywhere(NOEXEC),
        6 => everywhere(SMALL),
        7 => with_program("uname", "case $1 in -m) echo riscv64;; *) echo 6.1.0;; esac"),
        8 => with_program("sudo", "echo 'sudo: a password is required' >&2; exit 1"),
        9 => with_program("sudo", "[ \"$1\" = -n ] && shift && exec \"$@\""),
        12 => with_program("timeout", "exit 127"),
        _ => Peculiarity::default(),
    });
    let Some(lab) = lab else { return };
    lab.swap_host_keys(0, 9);
    lab.forget_host_key(10);
    for name in ["d8", "d9"] {
        assert!(lab.dwell(&["device", "edit", name, "--sudo"]).status.success());
    }
    lab.add("nowhere", "nowhere.invalid", &[]);
    lab.add("closed", &format!("root@{}:9", lab.devices[0].address), &[]);
    let checked = lab.json(&["device", "check"]);
    let answer = |name: &str| {
        let result = result(&checked, name);
        assert_eq!(result["state"], "answered", "{result:#}");
        &result["answer"]
    };
    let error = |name: &str, texts: &[&str]| {
        let result = result(&checked, name);
        let error = result["error"].as_str().unwrap_or_else(|| panic!("{result:#}"));
        for text in texts {
            assert!(error.contains(text), "{name}: {error}");
        }
    };
    error("d1", &["has changed", "ssh-keygen -R"]);
    error("d2", &["Permission denied", "ssh-copy-id"]);
    assert_eq!(answer("d3")["dir"], "/tmp/dwell-0");
    assert_eq!(answer("d4")["dir"], "/tmp/dwell-0");
    let noexec = format!("{}: programs cannot be executed", cache());
    error("d5", &[&noexec, "/dev/shm/dwell-0", "noexec"]);
    error("d6", &["cannot store", "No space left on device", "free space"]);
    error("d7", &["machine type riscv64", "--target TARGET", "DWELL_NODES"]);
    let rule = format!("NOPASSWD: {}/dwell-node-*", cache());
    error("d8", &["sudo: a password is required", &rule]);
    assert_eq!(answer("d9")["uid"], 0);
    error("d10", &["has changed"]);
    error("d11", &["Host key verification failed", "accept its host key once"]);
    assert_eq!(answer("d12")["dir"], cache());
    error("nowhere", &["nowhere.invalid"]);
    error("closed", &["refused"]);

    let left = lab.files_inside(5);
    assert_eq!(names(&left).iter().filter(|name| name.contains("part")).count(), 0, "{left:?}");
    assert!(left.iter().all(|path| path.is_dir() || path.metadata().unwrap().len() == 0));
    lab.assert_all_idle();
}
