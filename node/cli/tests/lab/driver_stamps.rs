//! `dwell ping --stamps driver` between two nodes: the order of the three round trips, loss and
//! reordering, interfaces without native XDP or with another program, and the end of the program.

use std::process::{Command, Stdio};

use dwell_io::bpf::{Hook, Pass, XdpMode};
use dwell_io::{interface, netns};
use serde_json::Value;

use crate::fixture::{DWELL, Running, TestLab, as_root, assert_follows, said, until};

/// Pings from n1 with timestamps of the driver; returns the summary and the rows.
fn ping(lab: &TestLab, arguments: &[&str]) -> (Value, Vec<Value>) {
    let rows = tempfile::NamedTempFile::new().unwrap();
    let path = rows.path().to_str().unwrap();
    let fixed = [DWELL, "ping", "--stamps", "driver", "-q", "--json", "--csv", path];
    let output = lab.exec("n1", &[&fixed, arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_follows("dwell.summary-1", &summary);
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let row = |cells: Vec<&str>| {
        let number = |cell: &str| cell.parse::<i64>().map_or_else(|_| cell.into(), Value::from);
        names.iter().zip(cells).map(|(name, cell)| ((*name).to_owned(), number(cell))).collect()
    };
    (summary, lines.map(row).collect())
}

fn number(row: &Value, name: &str) -> i64 {
    row[name].as_i64().unwrap_or_else(|| panic!("{name} of {row}"))
}

#[test]
fn three_round_trips_are_ordered_in_every_protocol() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-order", &["line:2"]);
    let urls = ["stamp://[::]:862", "stamp://0.0.0.0:862", "udp://[::]:7", "udp://0.0.0.0:7"];
    let urls = [&urls[..], &["roundtrip://0.0.0.0:4000", "text+udp://0.0.0.0:4001"]].concat();
    let reflector = Running::start(&lab, "n2", "text+udp", &[&["reflect"], &urls[..]].concat());
    for target in [
        &["-4", "stamp://n2"][..],
        &["-6", "stamp://n2"],
        &["-4", "udp://n2:7"],
        &["-6", "udp://n2:7"],
        &["-4", "icmp://n2"],
        &["-6", "icmp://n2"],
        &["-4", "--icmp-socket", "raw", "-s", "4", "icmp://n2"],
        &["-4", "text+udp://n2:4001", "--pause", "1ms"],
    ] {
        let mut arguments = vec!["-c", "100"];
        if !target.contains(&"--pause") {
            arguments.extend(["-i", "0.001"]);
        }
        arguments.extend(target);
        let (summary, rows) = ping(&lab, &arguments);
        let driver = &summary["driver"];
        assert_eq!((&driver["tx"], &driver["absent"]), (&"tx_kernel".into(), &Value::Null));
        assert_eq!((&driver["stamped"], &driver["unseen"]), (&100.into(), &0.into()), "{target:?}");
        assert_eq!((&driver["unmatched"], &driver["lost"]), (&0.into(), &0.into()), "{target:?}");
        assert_eq!(summary["stamps"]["rx"], "driver");
        assert_eq!(summary["metrics"]["rtt_driver_ns"]["count"], 100);
        assert_eq!(driver["layers"].as_array().unwrap().len(), 3);
        for row in &rows {
            let [driver, kernel, program] =
                ["rtt_driver_ns", "rtt_kernel_ns", "rtt_ns"].map(|name| number(row, name));
            assert!(0 < driver && driver <= kernel && kernel <= program, "{target:?} {row}");
        }
    }
    drop(reflector.end());
}

#[test]
fn stamps_join_by_id_under_loss_and_reordering() {
    if !as_root() {
        return;
    }
    let link = ["line:2", "--delay", "5ms", "--loss", "10%", "--reorder", "10%"];
    let lab = TestLab::up("driver-loss", &link);
    let (summary, rows) = ping(&lab, &["-c", "500", "-i", "0.001", "-W", "200ms", "icmp://n2"]);
    let packets = &summary["packets"];
    assert!(packets["lost"].as_u64() > Some(20) && packets["reordered"].as_u64() > Some(20));
    let received: Vec<_> = rows.iter().filter(|row| row["state"] == "received").collect();
    let mut far = 0;
    for row in &received {
        let [driver, kernel] = ["rtt_driver_ns", "rtt_kernel_ns"].map(|name| number(row, name));
        assert!(driver <= kernel, "{row}");
        // The timestamp of another reply is about 1 ms away.
        far += usize::from(kernel - driver > 900_000);
    }
    assert!(far * 20 < received.len(), "{far} of {}", received.len());
    assert_eq!(summary["driver"]["unseen"], 0);
}

#[test]
fn interface_without_native_xdp_gives_the_reason() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-lo", &["line:2"]);
    let (summary, _) = ping(&lab, &["-c", "3", "-i", "0.001", "icmp://127.0.0.1"]);
    let why = summary["driver"]["absent"].as_str().unwrap();
    assert!(why.contains("no native XDP on interface lo"), "{why}");
    assert_eq!(summary["metrics"]["rtt_driver_ns"], Value::Null);
    assert!(summary["trust"]["warnings"].to_string().contains("no-driver-timestamps"));
    let fails = |arguments: &[&str]| {
        let output = lab.exec("n1", &[&[DWELL, "ping", "-c", "1"], arguments].concat());
        (output.status.code(), said(&output))
    };
    let driver = ["--stamps", "driver", "icmp://n2", "--interface"];
    let (code, text) = fails(&[&driver[..], &["nowhere"]].concat());
    assert!(code == Some(2) && text.contains("interface nowhere does not exist"), "{text}");
    let (code, text) = fails(&["--interface", "lo", "icmp://n2"]);
    assert!(code == Some(2) && text.contains("--stamps driver"), "{text}");
}

/// Id of the XDP program on the interface of n1 to n2.
fn xdp_program(lab: &TestLab, index: u32) -> Option<u32> {
    netns::within(&lab.netns("n1"), || interface::xdp_program(index)).unwrap().unwrap()
}

/// Index of the interface of n1 to n2.
fn link(lab: &TestLab) -> u32 {
    let all = netns::within(&lab.netns("n1"), interface::all).unwrap().unwrap();
    all.into_iter().find(|found| found.name != "lo" && found.up).expect("a link").index
}

#[test]
fn killed_ping_leaves_no_program() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-kill", &["line:2"]);
    let index = link(&lab);
    let mut child = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n1", "--", DWELL, "ping", "-q"])
        .args(["--stamps", "driver", "-i", "0.01", "icmp://n2"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the program is attached", || xdp_program(&lab, index).is_some());
    crate::fixture::kill(&mut child);
    until("the program is gone", || xdp_program(&lab, index).is_none());
}

#[test]
fn interface_of_another_xdp_program_is_refused() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-taken", &["line:2"]);
    let index = link(&lab);
    let other = netns::within(&lab.netns("n1"), || {
        Pass::load(Hook::Xdp).unwrap().attach_xdp(index, XdpMode::Native)
    });
    let other = other.unwrap().unwrap();
    let id = xdp_program(&lab, index).unwrap();
    let output = lab.exec("n1", &[DWELL, "ping", "--stamps", "driver", "-c", "1", "icmp://n2"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("XDP program {id}")), "{text}");
    assert_eq!(xdp_program(&lab, index), Some(id), "the other program stays");
    drop(other);
}
