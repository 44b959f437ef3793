//! Encrypting relays in a lab.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use crate::fixture::{DWELL, TestLab, as_root, kill};

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Starts a relay in node n2 towards n3; returns its standard error until it was ready.
fn relay(lab: &TestLab, cipher: &str) -> (Child, String) {
    let mut child = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n2", "--", DWELL, "relay", "--json"])
        .args(["--listen", "udp://0.0.0.0:7001", "--to", "udp://198.19.0.3:7001"])
        .args(["--mode", "encrypt", "--cipher", cipher])
        .env("DWELL_KEY", KEY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let (mut said, mut byte) = (String::new(), [0]);
    while !said.contains("relaying") && stderr.read(&mut byte).unwrap() == 1 {
        said.push(char::from(byte[0]));
    }
    (child, said)
}

#[test]
fn ctr_relay_in_a_lab_does_not_warn() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("cipher", &["line:3"]);
    let receiver = lab.socket("n3", "0.0.0.0:7001");
    let sender = lab.socket("n1", "0.0.0.0:0");
    for (cipher, longer) in [("aes-128-ctr", 12), ("aes-128-gcm", 28)] {
        let (mut child, said) = relay(&lab, cipher);
        assert!(said.contains("relaying"), "{cipher}: {said}");
        assert!(!said.contains("warning"), "{cipher}: {said}");
        sender.send_to(&[5; 300], "198.19.0.2:7001").unwrap();
        assert_eq!(receiver.recv(&mut [0; 1_000]).unwrap(), 300 + longer, "{cipher}");
        kill(&mut child);
    }
}
