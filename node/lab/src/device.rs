//! Nodes whose probes a microcontroller answers, emulated by QEMU. The node's namespace is the router
//! in front of it: the device has the node's IPv4 address, at a TAP interface. One process of dwell per
//! device (`dwell lab device DIR K`) starts and supervises QEMU, which ends with it, however it ends.
//!
//! ```text
//! device-K.pid      the supervising process of the node with index K
//! device-K.config   the device's configuration page
//! device-K.serial   what the device prints
//! device-K.log      messages of QEMU and of the supervisor
//! ```

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dwell_io::netns;
use dwell_io::process::{self, Handle, Signal};
use dwell_units::Nanos;

use crate::addressing::{self, Hardware};
use crate::background;
use crate::description::{Device, Lab, Node};
use crate::error::LabError;
use crate::iproute::Tool;
use crate::namespace::netns_path;
use crate::state::{DIR_VARIABLE, LabDir, Lock};
use crate::topology::{DeviceKind, DeviceRequest, Routing, Topology};

/// Emulator of the devices.
const PROGRAM: &str = "qemu-system-arm";

/// Interface to the device in the node's namespace. No node has a hyphen in its name.
const INTERFACE: &str = "device-tap";

/// Address of the namespace at the TAP interface, and the device's default gateway (RFC 3927).
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 86, 1);

/// Address of the device's configuration page in its flash memory (`firmware/cortex-m3`).
const CONFIGURATION_AT: &str = "0x3fc00";

/// Last line of the device's console during its start.
const READY: &str = ": ready at ";

/// Time-out for the start of a device.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How often the supervisor checks whether the device and the lab's directory still exist.
const CHECK_INTERVAL: Nanos = Nanos::from_millis(500);

/// Checks that devices are possible in this lab and that the emulator is installed, before anything is
/// created.
pub(crate) fn check(topology: &Topology) -> Result<(), LabError> {
    let Some((node, _)) = topology.devices.first() else { return Ok(()) };
    let node = &topology.nodes[*node];
    if topology.routing == Routing::Babel {
        return Err(LabError::Unsupported(format!(
            "node {node} is a microcontroller, which runs no babeld; use static routes"
        )));
    }
    let has_quota = |place| topology.quotas.iter().any(|(with_quota, _)| *with_quota == place);
    if let Some((limited, _)) = topology.devices.iter().find(|(place, _)| has_quota(*place)) {
        return Err(LabError::Unsupported(format!(
            "node {} is a microcontroller, which has no quota",
            topology.nodes[*limited]
        )));
    }
    background::find_program(PROGRAM, &format!("node {node}"), PROGRAM).map(drop)
}

/// Plans the device of a node: finds its image.
pub(crate) fn plan(node: &str, request: &DeviceRequest) -> Result<Device, LabError> {
    let candidates = match &request.image {
        Some(image) => vec![image.clone()],
        None => default_images(&std::env::current_exe().unwrap_or_default(), request.kind),
    };
    let image = candidates.iter().find(|image| image.is_file()).ok_or_else(|| {
        let tried: Vec<String> = candidates.iter().map(|it| it.display().to_string()).collect();
        LabError::Unsupported(format!(
            "node {node}: there is no image of the {} firmware (tried {}); build it: make firmware",
            request.kind,
            tried.join(", ")
        ))
    })?;
    let image =
        fs::canonicalize(image).map_err(LabError::io(format!("finding the image of {node}")))?;
    Ok(Device { kind: request.kind, image })
}

/// Returns the places of the image beside a program in `target/PROFILE` or in `PREFIX/bin`.
fn default_images(program: &Path, kind: DeviceKind) -> Vec<PathBuf> {
    let above = program.parent().and_then(Path::parent);
    let file = format!("dwell-{kind}.elf");
    let places = [format!("firmware/{kind}/{file}"), format!("lib/dwell/firmware/{file}")];
    above.into_iter().flat_map(|above| places.iter().map(|place| above.join(place))).collect()
}

/// Starts the devices of a lab and waits until they answer.
pub(crate) fn start(dir: &LabDir, lock: &Lock, lab: &Lab) -> Result<(), LabError> {
    let devices =
        lab.nodes.iter().enumerate().filter_map(|(at, it)| Some((at, it, it.device.as_ref()?)));
    let starting: Vec<_> = devices
        .map(|(place, node, device)| {
            let what = format!("{} of {}", device.kind, node.name);
            let number = place.to_string();
            background::start(what, &[Path::new("device"), dir.path(), Path::new(&number)], lock)
        })
        .collect::<Result<_, _>>()?;
    starting.into_iter().try_for_each(|device| device.ready().map(drop))
}

/// Whether all devices of the lab run.
pub(crate) fn run(dir: &LabDir, lab: &Lab) -> bool {
    let mut devices = lab.nodes.iter().enumerate().filter(|(_, node)| node.device.is_some());
    devices.all(|(place, _)| background::running(dir, &pid_file(place)).is_some())
}

/// Ends the supervisors, and with them all devices.
pub(crate) fn end(dir: &LabDir) {
    let Ok(Some(lab)) = dir.read() else { return };
    let files = (0..lab.nodes.len()).map(pid_file);
    let supervisors: Vec<Handle> = files
        .filter_map(|file| background::running(dir, &file))
        .map(|(_, handle)| handle)
        .collect();
    background::end(&supervisors);
}

/// Runs the device of the node with index `place`, until SIGTERM, until QEMU ends, or until the lab's
/// directory is gone.
///
/// # Errors
/// There is no such device, a TAP interface is not permitted, or the device does not start.
pub fn run_device(dir: &LabDir, place: usize) -> Result<(), LabError> {
    background::write_identity(dir, &pid_file(place))?;
    let signals = process::block(&[Signal::Hangup, Signal::Interrupt, Signal::Terminate])
        .map_err(LabError::io("blocking signals"))?;
    let missing = || LabError::NotWhole(dir.name().to_owned());
    let lab = dir.read()?.ok_or_else(missing)?;
    let node = lab.nodes.get(place).ok_or_else(missing)?;
    let device = node.device.as_ref().ok_or_else(missing)?;
    let program = background::find_program(PROGRAM, &format!("node {}", node.name), PROGRAM)?;
    netns::enter(&netns_path(&node.netns))
        .map_err(LabError::io(format!("entering {}", node.netns)))?;
    make_interface(node, place)?;
    let page = configuration_page(node.addresses.v4, addressing::device_hardware(place));
    dir.write_file(&format!("device-{place}.config"), &page)?;
    let mut child = spawn(dir, place, node, device, &program)?;
    // Leave the node, so as not to count as one of its processes.
    netns::enter_new().map_err(LabError::io("creating a namespace"))?;
    let started = wait_until_ready(dir, place, &mut child);
    if started.is_ok() {
        background::ready(dir, &log_file(place))?;
        while signals.take(CHECK_INTERVAL) != Some(Signal::Terminate)
            && dir.path().exists()
            && matches!(child.try_wait(), Ok(None))
        {}
    }
    let _ = child.kill();
    let _ = child.wait();
    started
}

/// Creates the interface to the device, and the route to it.
fn make_interface(node: &Node, place: usize) -> Result<(), LabError> {
    let device = node.addresses.v4;
    let hardware = addressing::device_hardware(place);
    Tool::Ip.batch(&format!("tuntap add name {INTERFACE} mode tap\n"), None).map_err(|error| {
        LabError::Unsupported(format!(
            "node {} needs a TAP interface, which cannot be created ({error}); run it as root",
            node.name
        ))
    })?;
    let lines = [
        format!("link set dev {INTERFACE} addrgenmode none"),
        format!("link set dev {INTERFACE} up"),
        format!("addr add {GATEWAY}/32 dev {INTERFACE}"),
        format!("neigh replace {device} lladdr {hardware} dev {INTERFACE} nud permanent"),
        format!("route add {device}/32 dev {INTERFACE} proto static"),
    ];
    Tool::Ip.batch(&lines.map(|line| line + "\n").concat(), None)
}

/// Returns the configuration page of a device (`firmware/cortex-m3/configuration.h`). All other addresses
/// are behind the gateway.
fn configuration_page(address: Ipv4Addr, Hardware(hardware): Hardware) -> Vec<u8> {
    let mut page = b"DWL1".to_vec();
    for address in [address, Ipv4Addr::BROADCAST, GATEWAY] {
        page.extend(address.octets());
    }
    page.extend(hardware);
    page.extend([0; 2]);
    page
}

/// Starts QEMU in the namespace of the calling thread, the main one: QEMU ends with that thread.
fn spawn(
    dir: &LabDir,
    place: usize,
    node: &Node,
    device: &Device,
    program: &Path,
) -> Result<Child, LabError> {
    let failed = |error| LabError::io(format!("starting {PROGRAM} for {}", node.name))(error);
    let hardware = addressing::device_hardware(place);
    // A comma separates the options of an argument, so it is doubled inside of a value.
    let file = |name: &str| dir.file(name).display().to_string().replace(',', ",,");
    let log = File::create(dir.file(&log_file(place))).map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["-M", machine(device.kind), "-display", "none", "-monitor", "none", "-serial"]);
    command.arg(format!("file:{}", dir.file(&serial_file(place)).display()));
    command.arg("-kernel").arg(&device.image);
    command.arg("-device").arg(format!(
        "loader,file={},addr={CONFIGURATION_AT},force-raw=on",
        file(&format!("device-{place}.config"))
    ));
    command
        .arg("-nic")
        .arg(format!("tap,ifname={INTERFACE},script=no,downscript=no,mac={hardware}"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // These variables identify the process if the namespace keeper of a rootless lab was killed.
        .env("DWELL_LAB", dir.name())
        .env("DWELL_NODE", &node.name)
        .env(DIR_VARIABLE, dir.path());
    process::end_with_parent(&mut command, Signal::Kill).spawn().map_err(failed)
}

/// QEMU's machine of this kind.
const fn machine(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::CortexM3 => "lm3s6965evb",
    }
}

/// Waits until the device prints that it is ready.
fn wait_until_ready(dir: &LabDir, place: usize, child: &mut Child) -> Result<(), LabError> {
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    let since = Instant::now();
    let read = |name: String| fs::read_to_string(dir.file(&name)).unwrap_or_default();
    loop {
        let printed = read(serial_file(place));
        if printed.lines().any(|line| line.contains(READY)) {
            return Ok(());
        }
        let message = match child.try_wait().map_err(LabError::io("waiting for QEMU"))? {
            Some(status) => format!("{PROGRAM} ended ({status}): {}", read(log_file(place)).trim()),
            None if since.elapsed() > START_TIMEOUT => format!(
                "the device was not ready within {} s; it printed: {}",
                START_TIMEOUT.as_secs(),
                printed.trim()
            ),
            None => {
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
        };
        return Err(LabError::Background { what: "device".to_owned(), message });
    }
}

fn pid_file(place: usize) -> String {
    format!("device-{place}.pid")
}

fn serial_file(place: usize) -> String {
    format!("device-{place}.serial")
}

fn log_file(place: usize) -> String {
    format!("device-{place}.log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::LinkOptions;

    #[test]
    fn device_has_neither_quota_nor_babeld() {
        let text = "version = 1\nnodes = [\"a\"]\n[device.a]\nkind = \"cortex-m3\"";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lab.toml");
        fs::write(&file, text).unwrap();
        let lab = Topology::read(file.to_str().unwrap(), &LinkOptions::default()).unwrap();
        let quota = ["a=20%".parse().unwrap()];
        let limited = check(&lab.clone().with_quotas(&quota).unwrap()).unwrap_err().to_string();
        assert!(limited.contains("node a is a microcontroller, which has no quota"), "{limited}");
        let routed = check(&lab.with_routing(Routing::Babel)).unwrap_err().to_string();
        assert!(routed.contains("use static routes"), "{routed}");
    }

    #[test]
    fn missing_image_error_says_how_to_build_it() {
        let empty = tempfile::tempdir().unwrap();
        let request = |image| DeviceRequest { kind: DeviceKind::CortexM3, image };
        let missing =
            plan("mcu", &request(Some(empty.path().join("x.elf")))).unwrap_err().to_string();
        assert!(missing.starts_with("node mcu: there is no image"), "{missing}");
        assert!(missing.contains("x.elf") && missing.ends_with("make firmware"), "{missing}");
        File::create(empty.path().join("x.elf")).unwrap();
        let found = plan("mcu", &request(Some(empty.path().join("x.elf")))).unwrap();
        assert!(found.image.is_absolute() && found.image.ends_with("x.elf"));
    }

    #[test]
    fn image_is_found_beside_built_and_installed_programs() {
        let images = |program: &str| default_images(Path::new(program), DeviceKind::CortexM3);
        let built = PathBuf::from("/src/target/firmware/cortex-m3/dwell-cortex-m3.elf");
        assert!(images("/src/target/release/dwell").contains(&built));
        let installed = PathBuf::from("/usr/local/lib/dwell/firmware/dwell-cortex-m3.elf");
        assert!(images("/usr/local/bin/dwell").contains(&installed));
    }

    #[test]
    fn configuration_page_has_the_layout_of_the_firmware() {
        let page = configuration_page([198, 19, 0, 2].into(), Hardware([2, 1, 0, 0, 0, 9]));
        let expected = [
            b'D', b'W', b'L', b'1', 198, 19, 0, 2, 255, 255, 255, 255, 169, 254, 86, 1, 2, 1, 0, 0,
            0, 9, 0, 0,
        ];
        assert_eq!(page, expected);
    }
}
