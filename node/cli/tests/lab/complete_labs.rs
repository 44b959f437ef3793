//! Complete labs: nodes, names, connectivity, running commands; and rejected command lines.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use dwell_io::netns;

use crate::fixture::{TestLab, as_root, dwell, said};

#[test]
fn nodes_are_reachable_by_name_and_down_removes_all() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("line", &["line:3", "--rate", "100Mbit/s", "--mechanism", "tbf"]);
    let found = lab.exec("n1", &["getent", "ahosts", "n3"]);
    let found = String::from_utf8(found.stdout).unwrap();
    for address in ["198.19.0.3", "fd64:7765:6c6c:ffff::3"] {
        assert!(found.contains(address), "{found}");
        let address: IpAddr = address.parse().unwrap();
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let far = lab.socket("n3", &SocketAddr::new(address, 7_000).to_string());
        let near = lab.socket("n1", any);
        near.send_to(b"there", SocketAddr::new(address, 7_000)).unwrap();
        let (_, from) = far.recv_from(&mut [0; 8]).unwrap();
        let own = ["198.19.0.1", "fd64:7765:6c6c:ffff::1"].map(|a| a.parse::<IpAddr>().unwrap());
        assert!(own.contains(&from.ip()), "sent from the node's own address, not {from}");
        far.send_to(b"back", from).unwrap();
        near.recv(&mut [0; 8]).unwrap();
    }
    let description = lab.describe();
    assert_eq!(description["nodes"][2]["addresses"]["v4"], "198.19.0.3");
    assert_eq!(description["links"][0]["mechanism"], "tbf");
    let sent = &description["links"][0]["counters"]["a_to_b"]["delivered"];
    assert!(sent.as_u64() >= Some(2), "{description}");
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn exec_passes_exit_code_signals_and_environment() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("exec", &["line:1"]);
    assert_eq!(lab.exec("n1", &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(lab.exec("n1", &["sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
    let output =
        lab.exec("n1", &["sh", "-c", "echo $DWELL_LAB $DWELL_NODE; grep SigBlk /proc/self/status"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("{} n1\n", lab.name)), "{text}");
    assert!(text.contains("0000000000000000"), "no signal is blocked: {text}");
    let inside = lab.exec("n1", &["grep", "-c", " /sys ", "/proc/self/mountinfo"]).stdout;
    let outside = Command::new("grep").args(["-c", " /sys ", "/proc/self/mountinfo"]).output();
    assert_eq!(inside, outside.unwrap().stdout, "/sys is not mounted over");
    let missing = lab.exec("n9", &["true"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(said(&missing).contains("its nodes are n1"), "{}", said(&missing));
    let nothing = lab.exec("n1", &["/no/such/program"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(said(&nothing).contains("/no/such/program"));
}

#[test]
fn wrong_lab_option_exits_2_with_the_correction() {
    for (arguments, right) in [
        (&["lab", "up", "line:0"][..], "1 to 250"),
        (&["lab", "up", "line:251"], "1 to 250"),
        (&["lab", "up", "ring:3"], "line:3, star:5"),
        (&["lab", "up", "line:2", "--rate", "10"], "100Mbit/s"),
        (&["lab", "up", "line:2", "--rate", "1bit/s"], "'--rate <RATE>': 1bit/s is too slow"),
        (&["lab", "up", "line:2", "--rate", "7bit/s"], "the minimum rate of a link is 8bit/s"),
        (&["lab", "up", "line:2", "--delay", "5"], "10ms"),
        (&["lab", "up", "line:2", "--delay", "-5ms"], "delay"),
        (&["lab", "up", "line:2", "--rate", "-1Mbit/s"], "'--rate <RATE>'"),
        (&["lab", "up", "line:2", "--seed", "-1"], "'--seed <SEED>': a seed is a whole number"),
        (&["lab", "up", "line:2", "--loss", "1"], "50%"),
        (&["lab", "up", "line:2", "--jitter", "1ms"], "at most the delay"),
        (&["lab", "up", "line:2", "--mechanism", "magic"], "netem, tbf and tap"),
        (&["lab", "up", "line:2", "--name", "a/b"], "letters, digits"),
        (&["lab", "down", "no-such-lab"], "there is no lab 'no-such-lab'"),
    ] {
        let output = dwell(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
        assert!(said(&output).contains(right), "{arguments:?}: {}", said(&output));
        assert!(!said(&output).contains("unexpected argument"), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn nodes_may_be_named_like_iproute2_keywords() {
    if !as_root() {
        return;
    }
    const WORDS: &str = "a b d l m n t br up down master mtu group arp dev name index link type \
                         address addr netns promisc alias vrf txq state mode";
    let names: Vec<&str> = WORDS.split_whitespace().collect();
    let mut text = format!("version = 1\nnodes = {names:?}\n");
    // A ring, so that every name is an interface in two nodes; with both kinds of interfaces.
    for (place, name) in names.iter().enumerate() {
        let next = names[(place + 1) % names.len()];
        let more = if place == 0 { ", delay = \"1ms\", mechanism = \"tap\"" } else { "" };
        text += &format!("[[links]]\na = \"{name}\"\nb = \"{next}\"\n");
        text += &more.replace(", ", "\n");
        text += "\n";
    }
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    fs::write(file.path(), text).unwrap();
    let lab = TestLab::up("words", &[file.path().to_str().unwrap(), "--rate", "100Mbit/s"]);
    let found = lab.exec("a", &["getent", "hosts", "mode"]);
    assert!(found.status.success(), "{found:?}");
    let far = lab.socket("vrf", "[::]:7000");
    let near = lab.socket("a", "[::]:0");
    let place = names.iter().position(|name| *name == "vrf").unwrap() + 1;
    near.send_to(b"hello", format!("[fd64:7765:6c6c:ffff::{place:x}]:7000")).unwrap();
    far.recv(&mut [0; 8]).unwrap();
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn minimum_link_rate_works() {
    if !as_root() {
        return;
    }
    for mechanism in ["tbf", "tap"] {
        let options = ["line:2", "--rate", "8bit/s", "--mechanism", mechanism];
        let lab = TestLab::up(&format!("slow{mechanism}"), &options);
        assert_eq!(lab.describe()["links"][0]["parameters"]["rate_bps"], 8);
    }
}

#[test]
fn two_labs_coexist_and_must_be_named() {
    if !as_root() {
        return;
    }
    let (one, other) = (TestLab::up("one", &["star:3"]), TestLab::up("two", &["line:2"]));
    let output = dwell(&["lab", "exec", "n1", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains(&one.name) && said(&output).contains(&other.name));
    let taken = one.try_up(&["line:2"]);
    assert!(!taken.status.success());
    assert!(said(&taken).contains("already exists"), "{}", said(&taken));
    // Both use the same addresses without hearing each other.
    let in_other = other.socket("n2", "198.19.0.2:7000");
    let in_one = one.socket("n2", "198.19.0.2:7000");
    one.socket("n1", "0.0.0.0:0").send_to(b"one", "198.19.0.2:7000").unwrap();
    in_one.recv(&mut [0; 8]).unwrap();
    in_other.set_nonblocking(true).unwrap();
    assert!(in_other.recv(&mut [0; 8]).is_err());
    assert!(one.down().status.success());
    one.assert_nothing_is_left();
    assert_eq!(other.namespaces(), 2, "the other lab stays");
}

#[test]
fn ends_of_a_250_node_line_are_connected() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("long", &["line:250"]);
    let far = lab.socket("n250", "[::]:7000");
    let near = lab.socket("n1", "[::]:0");
    near.send_to(b"far away", "[fd64:7765:6c6c:ffff::fa]:7000").unwrap();
    far.recv(&mut [0; 8]).unwrap();
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn toml_file_defines_the_lab_and_processes_know_it() {
    if !as_root() {
        return;
    }
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    let text = r#"
        version = 1
        nodes = ["robot", "relay", "base"]
        links = [
            { a = "robot", b = "relay", rate = "10Mbit/s", mechanism = "tbf" },
            { a = "relay", b = "base" },
            { a = "base", b = "robot" },
        ]
    "#;
    fs::write(file.path(), text).unwrap();
    let lab = TestLab::up("file", &[file.path().to_str().unwrap()]);
    let far = lab.socket("base", "[::]:7000");
    let near = lab.socket("robot", "[::]:0");
    near.send_to(b"hello", "[fd64:7765:6c6c:ffff::3]:7000").unwrap();
    far.recv(&mut [0; 8]).unwrap();
    let description = lab.describe();
    assert_eq!(description["links"][0]["parameters"]["rate_bps"], 10_000_000);
    assert_eq!(description["links"][2]["mechanism"], "veth");
    assert_eq!(
        netns::within(&lab.netns("relay"), dwell_lab::here).unwrap(),
        Some(lab.name.clone())
    );
    assert_eq!(dwell_lab::here(), None, "this process is not in a lab");
}
