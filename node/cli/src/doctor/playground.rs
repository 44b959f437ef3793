//! Trying what would disturb the machine's own interfaces, in a network namespace made for it: it
//! has a loopback and a pair of virtual interfaces, and is gone when the thread ends.

use std::io;
use std::process::{Command, Stdio};

use dwell_io::bpf::{Hook, Pass, XdpMode};
use dwell_io::{interface, netns};

use super::Ability;

/// Queueing disciplines, with parameters that make each of them start.
const QDISCS: [(&str, &[&str]); 4] = [
    ("tbf: limits a link's rate", &["tbf", "rate", "10mbit", "burst", "1600", "limit", "10000"]),
    ("netem: delays and loses packets", &["netem", "delay", "1ms"]),
    ("fq: paces by SO_TXTIME", &["fq"]),
    ("etf: launches by SO_TXTIME", &["etf", "clockid", "CLOCK_TAI", "delta", "100000"]),
];

/// Tries all of it.
pub(super) fn abilities() -> Vec<Ability> {
    netns::within_a_new_one(tried)
        .unwrap_or_else(|error| vec![Ability::of("network namespaces (dwell lab)", Err(error))])
}

fn tried() -> Vec<Ability> {
    let mut found = vec![Ability::of("network namespaces (dwell lab)", Ok(()))];
    let veth = iproute("ip", &["link", "add", "dwell0", "type", "veth", "peer", "name", "dwell1"]);
    let usable = veth.is_ok();
    found.push(Ability::of("virtual interfaces (veth)", veth));
    found.push(Ability::of("eBPF: load an XDP program", Pass::load(Hook::Xdp).map(drop)));
    found
        .push(Ability::of("eBPF: load a netfilter program", Pass::load(Hook::Netfilter).map(drop)));
    found.push(Ability::of("XDP on loopback, generic", xdp("lo", XdpMode::Generic)));
    if usable {
        found.push(Ability::of("XDP on veth, native", xdp("dwell0", XdpMode::Native)));
        for (name, parameters) in QDISCS {
            let replace = ["qdisc", "replace", "dev", "dwell0", "root"];
            found.push(Ability::of(name, iproute("tc", &[&replace[..], parameters].concat())));
        }
    }
    found
}

fn xdp(name: &str, mode: XdpMode) -> io::Result<()> {
    let program = Pass::load(Hook::Xdp)?;
    let interface = interface::all()?.into_iter().find(|found| found.name == name);
    let interface = interface.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    program.attach_xdp(interface.index, mode).map(drop)
}

/// Runs a program of iproute2; its first line of complaint is the reason.
fn iproute(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::other(format!("{program} (iproute2): {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let line = complaint.lines().find(|line| !line.is_empty()).unwrap_or("refused");
    Err(io::Error::other(line.trim().to_owned()))
}
