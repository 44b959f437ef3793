//! Tests that would disturb the machine's own interfaces, in a temporary network namespace. It has
//! a loopback and one end of a veth pair.
//!
//! Without the privilege to create one, a child process (`dwell doctor --sandbox`) creates it in
//! a user namespace, as `dwell lab up` does: a process cannot leave a user namespace again.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::process::{self, Command, Stdio};

use dwell_io::bpf::{BpfError, Hook, HookKind, Pass, XdpMode};
use dwell_io::tap::Tap;
use dwell_io::{interface, netns};
use serde::{Deserialize, Serialize};

use super::Ability;
use super::ebpf::{self, TestVeth};
use super::stamps::{self, StampSupport, TestPath};

/// Queueing disciplines, with parameters that they accept.
const QDISCS: [(&str, &[&str]); 4] = [
    ("tbf: limits a link's rate", &["tbf", "rate", "10mbit", "burst", "1600", "limit", "10000"]),
    ("netem: delays and loses packets", &["netem", "delay", "1ms"]),
    ("fq: paces by SO_TXTIME", &["fq"]),
    ("etf: launches by SO_TXTIME", &["etf", "clockid", "CLOCK_TAI", "delta", "100000"]),
];

const NAMESPACES: &str = "network namespaces (dwell lab)";
const VETH: &str = "virtual interfaces (veth)";
const TAP: &str = "TAP interfaces";
const XDP_LOOPBACK: &str = "XDP on loopback, generic";
const XDP_VETH: &str = "XDP on veth, native";

/// The features that need eBPF, each with its test.
const EBPF: [(&str, EbpfTest); 7] = [
    ("trace --hooks netfilter", |veth| ebpf::trace(HookKind::Netfilter, veth)),
    ("trace --hooks tcx", |veth| ebpf::trace(HookKind::Tcx, veth)),
    ("trace --hooks xdp", |veth| ebpf::trace(HookKind::Xdp, veth)),
    ("ping --stamps driver", ebpf::driver_timestamps),
    ("ping --explain", |_| ebpf::kernel_events()),
    ("reflect --engine xdp", ebpf::reflector),
    ("relay --engine xdp", ebpf::relay),
];

/// Tries a feature on a veth; the outcome may name a limit.
type EbpfTest = fn(&TestVeth) -> Result<Option<String>, BpfError>;

/// Results of the tests.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SandboxResults {
    pub(super) abilities: Vec<Ability>,
    pub(super) stamps: Vec<StampSupport>,
}

/// Runs all tests.
pub(super) fn run() -> SandboxResults {
    if netns::may_create() {
        netns::within_new(|| inside(None)).unwrap_or_else(|error| unavailable(&error))
    } else {
        run_in_child().unwrap_or_else(|error| unavailable(&error))
    }
}

/// Runs all tests in a user namespace, which this process then stays in. The process must have only
/// one thread.
pub(super) fn run_rootless() -> io::Result<SandboxResults> {
    netns::become_root_of_new_namespaces()?;
    Ok(inside(Some("in a user namespace, without root")))
}

fn run_in_child() -> io::Result<SandboxResults> {
    let output = Command::new(std::env::current_exe()?)
        .args(["doctor", "--sandbox"])
        .stdin(Stdio::null())
        .output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        io::Error::other(stderr.trim().trim_start_matches("dwell: ").to_owned())
    })
}

/// The results without a namespace: all other tests are unknown.
fn unavailable(error: &io::Error) -> SandboxResults {
    let qdiscs = QDISCS.into_iter().map(|(name, _)| name);
    let ebpf = EBPF.into_iter().map(|(name, _)| name);
    let others = [VETH, TAP, XDP_LOOPBACK, XDP_VETH].into_iter().chain(ebpf).chain(qdiscs);
    let why = "not tested: no network namespace is available";
    let untried = others.map(|name| Ability::untried(name, why));
    let namespaces = Ability::of(NAMESPACES, Err(io::Error::other(error.to_string())));
    SandboxResults {
        abilities: std::iter::once(namespaces).chain(untried).collect(),
        stamps: stamps::untried("veth", why),
    }
}

/// Runs the tests inside the namespace. `how` describes how it was created, if notable.
fn inside(how: Option<&str>) -> SandboxResults {
    let namespaces =
        Ability { name: NAMESPACES.into(), available: Some(true), reason: how.map(str::to_owned) };
    let far = FarNamespace::new();
    let veth = match &far {
        Ok(_) => Ability::of(VETH, Ok(())),
        Err(error) => Ability::of(VETH, Err(io::Error::other(error.to_string()))),
    };
    let mut abilities = vec![
        namespaces,
        veth,
        Ability::of(TAP, Tap::create("dwell2").map(drop)),
        Ability::of(XDP_LOOPBACK, xdp("lo", XdpMode::Generic)),
    ];
    // Test timestamps before anything is attached to the interface.
    let no_veth = "not tested: no veth is available";
    let stamps =
        far.as_ref().map_or_else(|_| stamps::untried("veth", no_veth), FarNamespace::stamps);
    let on_veth = |name, attempt: &dyn Fn() -> io::Result<()>| match &far {
        Ok(_) => Ability::of(name, attempt()),
        Err(_) => Ability::untried(name, no_veth),
    };
    abilities.push(on_veth(XDP_VETH, &|| xdp("dwell0", XdpMode::Native)));
    let index = interface::all().ok().and_then(|all| all.into_iter().find(|i| i.name == "dwell0"));
    let index = index.map_or(0, |found| found.index);
    for (name, test) in EBPF {
        let [near, far_end] = FarNamespace::V4;
        let veth = TestVeth { index, near, far: far_end };
        abilities.push(match &far {
            Ok(_) => ebpf_ability(name, test(&veth)),
            Err(_) => Ability::untried(name, no_veth),
        });
    }
    for (name, parameters) in QDISCS {
        let replace = ["qdisc", "replace", "dev", "dwell0", "root"];
        abilities.push(on_veth(name, &|| iproute("tc", &[&replace[..], parameters].concat())));
    }
    SandboxResults { abilities, stamps }
}

fn ebpf_ability(name: &'static str, tried: Result<Option<String>, BpfError>) -> Ability {
    // The cause of an error is part of its reason.
    let reason = |error| format!("{:#}", anyhow::Error::from(error)).replace('\n', "; ");
    match tried {
        Ok(limit) => Ability { name: name.into(), available: Some(true), reason: limit },
        Err(error) => {
            Ability { name: name.into(), available: Some(false), reason: Some(reason(error)) }
        }
    }
}

/// A second namespace with the other end of the pair, so that packets must traverse it.
struct FarNamespace(File);

impl FarNamespace {
    const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
    const V6: [Ipv6Addr; 2] = [
        Ipv6Addr::new(0xfd64, 0x7765, 0x6c6c, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xfd64, 0x7765, 0x6c6c, 0, 0, 0, 0, 2),
    ];

    fn new() -> io::Result<Self> {
        let far = Self(netns::within_new(|| File::open("/proc/thread-self/ns/net"))??);
        let place = format!("/proc/{}/fd/{}", process::id(), far.0.as_raw_fd());
        let pair = ["link", "add", "name", "dwell0", "type", "veth", "peer", "name", "dwell1"];
        iproute("ip", &[&pair[..], &["netns", &place]].concat())?;
        Self::configure("dwell0", 0)?;
        netns::within(place.as_ref(), || Self::configure("dwell1", 1))??;
        Ok(far)
    }

    fn configure(interface: &str, end: usize) -> io::Result<()> {
        iproute("ip", &["link", "set", "dev", "lo", "up"])?;
        iproute("ip", &["link", "set", "dev", interface, "up"])?;
        iproute("ip", &["addr", "add", &format!("{}/30", Self::V4[end]), "dev", interface])?;
        // Without IPv6 or ping sockets, the timestamp tests report the error.
        let v6 = format!("{}/64", Self::V6[end]);
        let _ = iproute("ip", &["addr", "add", &v6, "dev", interface, "nodad"]);
        let range = "/proc/sys/net/ipv4/ping_group_range";
        let _ = fs::write(range, "0 2147483647").or_else(|_| fs::write(range, "0 0"));
        Ok(())
    }

    fn stamps(&self) -> Vec<StampSupport> {
        let [_, v4] = Self::V4;
        let [_, v6] = Self::V6;
        TestPath { interface: "veth", v4, v6, far: Some(&self.0) }.stamps()
    }
}

fn xdp(name: &str, mode: XdpMode) -> io::Result<()> {
    let program = Pass::load(Hook::Xdp)?;
    let interface = interface::all()?.into_iter().find(|found| found.name == name);
    let interface = interface.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    program.attach_xdp(interface.index, mode).map(drop)
}

/// Runs a program of iproute2. The first line of its error output is the reason.
fn iproute(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", dwell_io::process::search_path())
        .env("LC_ALL", "C")
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
