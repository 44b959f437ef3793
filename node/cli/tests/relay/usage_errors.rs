//! Invalid command lines of `dwell relay`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::fixture::{KEY, beside_others, socket};
use crate::support::{DWELL, dwell, said};

fn refused(arguments: &[&str], key: Option<&str>) -> Output {
    let mut command = Command::new(DWELL);
    command.arg("relay").args(arguments).stdin(Stdio::null()).env_remove("DWELL_KEY");
    if let Some(key) = key {
        command.env("DWELL_KEY", key);
    }
    command.output().unwrap()
}

#[test]
fn invalid_relay_options_are_usage_errors() {
    let _machine = beside_others();
    let udp = ["--listen", "udp://127.0.0.1:7", "--to", "udp://127.0.0.1:9"];
    let with = |more: &[&'static str]| [&udp[..], more].concat();
    let cases = [
        (vec!["--listen", "udp://127.0.0.1:7", "--to", "udp://127.0.0.1:7"], "loop for ever"),
        (vec!["--listen", "udp://0.0.0.0:7", "--to", "udp://127.0.0.1:7"], "loop for ever"),
        (vec!["--listen", "udp://127.0.0.1:7", "--to", "udp://[::ffff:127.0.0.1]:7"], "for ever"),
        (vec!["--listen", "tcp://0.0.0.0:7", "--to", "tcp://[::ffff:127.0.0.9]:7"], "for ever"),
        (vec!["--listen", "udp://127.0.0.1:7", "--to", "tcp://127.0.0.1:9"], "does not change"),
        (vec!["--listen", "stamp://127.0.0.1:7", "--to", "udp://127.0.0.1:9"], "udp://ADDRESS"),
        (vec!["--listen", "udp://127.0.0.1:7", "--to", "udp://0.0.0.0:9"], "no machine"),
        (vec!["--listen", "udp://127.0.0.1:7", "--to", "udp://[::ffff:0.0.0.0]:9"], "no machine"),
        (vec!["--listen", "udp://127.0.0.1:7", "--to", "udp://224.0.0.1:9"], "two machines"),
        (vec!["--listen", "udp://127.0.0.1:7", "--to", "udp://255.255.255.255:9"], "broadcast"),
        (vec!["--listen", "udp://127.0.0.1:7", "--to", "udp://127.255.255.255:9"], "broadcast"),
        (vec!["--listen", "tcp://127.0.0.1:7", "--to", "tcp://127.255.255.255:9"], "broadcast"),
        (
            with(&["--mode", "encrypt"]),
            "--key-file FILE, or set the environment variable DWELL_KEY",
        ),
        (with(&["--cipher", "aes-128-gcm"]), "--cipher is for --mode encrypt and decrypt"),
        (with(&["--clear", "lots"]), "12, 16, 76 or 108; or auto"),
        (with(&["--hold", "wire:1ms"]), "program:200us or socket:2ms"),
        (with(&["--hold", "program:2s"]), "0s to 1s"),
        (with(&["--flows", "0"]), "1 to"),
        (with(&["--merge"]), "--engine batch"),
        (with(&["--engine", "batch", "--merge", "--stamps", "kernel"]), "stamped once"),
        (with(&["--idle", "10"]), "unit"),
    ];
    for (arguments, says) in cases {
        let output = refused(&arguments, None);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {}", said(&output));
        assert!(said(&output).contains(says), "{arguments:?}: {}", said(&output));
    }
    let tcp = ["--listen", "tcp://127.0.0.1:7", "--to", "tcp://127.0.0.1:9"];
    let of_datagrams = [
        &["--engine", "batch"][..],
        &["--clear", "auto"],
        &["--hold", "program:1ms"],
        &["--telemetry"],
        &["--busy-poll"],
        &["--stamps", "kernel"],
        &["--id", "iperf"],
    ];
    for more in of_datagrams {
        let output = refused(&[&tcp[..], more].concat(), None);
        assert_eq!(output.status.code(), Some(2), "{more:?} {}", said(&output));
        assert!(said(&output).contains(more[0]), "{more:?} {}", said(&output));
    }
    // A relay in the driver only relays between other machines.
    let output = refused(&[&udp[..], &["--engine", "xdp"]].concat(), None);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn invalid_or_readable_key_is_refused() {
    let _machine = beside_others();
    let directory = tempfile::tempdir().unwrap();
    let file = |text: &str, mode: u32| -> PathBuf {
        let path = directory.path().join(format!("key-{mode:o}-{}", text.len()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let with = |path: PathBuf| {
        let path = path.to_str().unwrap().to_owned();
        let mode = ["--mode", "encrypt", "--key-file", &path];
        let udp = ["--listen", "udp://127.0.0.1:7", "--to", "udp://127.0.0.1:9"];
        refused(&[&udp[..], &mode].concat(), None)
    };
    for (path, says) in [
        (file(KEY, 0o644), "others can read it; chmod 600"),
        (file(&KEY[2..], 0o600), "32 hexadecimal digits"),
        (directory.path().join("none"), "No such file"),
    ] {
        let output = with(path);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(says), "{}", said(&output));
    }
    let short = refused(
        &["--listen", "udp://127.0.0.1:7", "--to", "udp://127.0.0.1:9", "--mode", "decrypt"],
        Some("abc"),
    );
    assert_eq!(short.status.code(), Some(2));
    assert!(said(&short).contains("DWELL_KEY: not an AES-128 key"), "{}", said(&short));
    assert!(!said(&short).contains("abc"), "a key is never shown");
}

#[test]
fn used_port_is_reported() {
    let _machine = beside_others();
    let taken = socket();
    let listen = format!("udp://{}", taken.local_addr().unwrap());
    let output = dwell(&["relay", "--listen", &listen, "--to", "udp://127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("is in use"), "{}", said(&output));
}
