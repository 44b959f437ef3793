//! A forced line of radios that mac80211_hwsim simulates, in an ad hoc network (IBSS) on the channel of
//! Miya 2020. The kernel's own 802.11 code runs in every node; the channel has no attenuation, no
//! collisions and no airtime.
//!
//! All radios of a lab are created in a namespace of their own and moved to the nodes from there. The
//! kernel passes frames only between radios that were created in the same namespace, so labs do not
//! hear each other, and it removes a radio together with the namespace that it is in. Every radio
//! hears all others: a filter in each node drops what arrives from nodes that are not neighbours.

use std::io;
use std::process::{Command, Stdio};

use dwell_engine::link::LinkParameters;
use dwell_io::netns;
use dwell_io::wireless::{AdHocNetwork, RadioSimulator, Wireless, WirelessInterface};

use crate::addressing::{self, RADIO_NETWORK};
use crate::description::{Lab, Medium, Parameters, RadioChannel};
use crate::emulation::MechanismChooser;
use crate::error::LabError;
use crate::iproute::Tool;
use crate::namespace::{self, netns_name, netns_path, not_entered};
use crate::shared_bridge;
use crate::state::Lock;
use crate::topology::{Mechanism, MediumKind, Topology};

/// Kernel module that simulates the radios.
const MODULE: &str = "mac80211_hwsim";

/// Name of the interface in every node.
const INTERFACE: &str = "wlan0";

/// Channel 9 of the 2.4 GHz band (Miya 2020).
const FREQUENCY_MHZ: u32 = 2_452;
/// Width of the channel (Miya 2020).
const WIDTH_MHZ: u32 = 20;

/// Checks that radios can be simulated, before anything is created. Loads the module if necessary.
pub(crate) fn check(topology: &Topology) -> Result<(), LabError> {
    if topology.shared != Some(MediumKind::Radio) || is_loaded()? {
        return Ok(());
    }
    // Without radios of its own, which would be in the machine's namespace.
    let loading = Command::new("modprobe")
        .args([MODULE, "radios=0"])
        .env("PATH", dwell_io::process::search_path())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let reason = match loading {
        Ok(_) if is_loaded()? => return Ok(()),
        Ok(output) => refusal(&output.stderr),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            "the program modprobe is missing: apt-get install kmod".to_owned()
        }
        Err(error) => format!("cannot start modprobe: {error}"),
    };
    Err(unsupported(&reason))
}

fn unsupported(reason: &str) -> LabError {
    LabError::Unsupported(format!(
        "a Wi-Fi lab needs the kernel module {MODULE}, which is not loaded ({reason}); as root: \
         modprobe {MODULE} radios=0, on a kernel that has it, such as Debian's linux-image-amd64; \
         without radios, forced:N is the same line on a bridge"
    ))
}

/// Returns the first line that modprobe printed.
fn refusal(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("modprobe gave no reason").trim_start_matches("modprobe: ").to_owned()
}

fn is_loaded() -> Result<bool, LabError> {
    let simulator = RadioSimulator::open().map_err(LabError::io("listing netlink families"))?;
    Ok(simulator.is_some())
}

/// Plans the channel.
pub(crate) fn plan(
    lab: &str,
    topology: &Topology,
    chooser: &mut MechanismChooser,
) -> Result<Medium, LabError> {
    Ok(Medium {
        netns: netns_name(lab, shared_bridge::NAME),
        interface: INTERFACE.to_owned(),
        filter: shared_bridge::filter(chooser)?,
        mechanism: Mechanism::Hwsim,
        parameters: Parameters::new(&LinkParameters::default(), None),
        radio: Some(RadioChannel {
            driver: MODULE.to_owned(),
            ssid: network(lab).name,
            bssid: RADIO_NETWORK.to_string(),
            frequency_mhz: FREQUENCY_MHZ,
            width_mhz: WIDTH_MHZ,
        }),
        ports: shared_bridge::ports(topology),
    })
}

fn network(lab: &str) -> AdHocNetwork {
    // A lab name has at most 20 characters, an SSID 32 bytes.
    let name = format!("dwell-{lab}");
    AdHocNetwork { name, bssid: RADIO_NETWORK.0, frequency_mhz: FREQUENCY_MHZ }
}

/// Creates the radios, in a namespace that the lab's state lists already, and moves each to its
/// node.
pub(crate) fn make(lab: &Lab, medium: &Medium, lock: &Lock) -> Result<(), LabError> {
    let work = || {
        let mark = namespace::mark(&lab.name);
        Tool::Ip.batch(&format!("link set dev lo up alias {mark}\n"), Some(lock))?;
        let simulator = RadioSimulator::open()
            .map_err(LabError::io("opening the simulator of radios"))?
            .ok_or_else(|| unsupported("it was removed"))?;
        for node in &lab.nodes {
            // Names of radios are unique on the machine.
            let name = &node.netns;
            simulator.create(name).map_err(LabError::io(format!("creating the radio {name}")))?;
            let (wireless, radio) = only_radio(&medium.netns)?;
            wireless
                .move_radio(radio.radio, &netns_path(&node.netns))
                .map_err(LabError::io(format!("moving the radio {name} to {}", node.name)))?;
        }
        Ok(())
    };
    netns::within(&netns_path(&medium.netns), work)
        .map_err(not_entered(&lab.name, &medium.netns))?
}

/// Joins the node that the calling thread is in to the network, with the filter in place before.
pub(crate) fn join(lab: &Lab, medium: &Medium, place: usize, lock: &Lock) -> Result<(), LabError> {
    let node = &lab.nodes[place].name;
    let failed = |what: &str| LabError::io(format!("{what} in {node}"));
    let (wireless, found) = only_radio(&lab.nodes[place].netns)?;
    let hardware = addressing::bridge_hardware(place);
    Tool::Ip.batch(
        &format!(
            "link set dev {} down\nlink set dev {} name {INTERFACE} address {hardware}\n",
            found.name, found.name
        ),
        Some(lock),
    )?;
    wireless.set_ad_hoc(found.index).map_err(failed("setting the ad hoc mode"))?;
    Tool::Tc.batch(&shared_bridge::filters(medium, place, INTERFACE, "ingress"), Some(lock))?;
    Tool::Ip.batch(&format!("link set dev {INTERFACE} up\n"), Some(lock))?;
    wireless
        .join_ad_hoc(found.index, &network(&lab.name))
        .map_err(failed("joining the ad hoc network"))
}

/// Returns the wireless interface of the namespace that the calling thread is in, which has one.
fn only_radio(netns: &str) -> Result<(Wireless, WirelessInterface), LabError> {
    let wireless = Wireless::open().map_err(LabError::io("opening nl80211"))?;
    let wireless = wireless.ok_or_else(|| unsupported("the kernel has no nl80211"))?;
    let mut found = wireless.interfaces().map_err(LabError::io("listing wireless interfaces"))?;
    match found.pop() {
        Some(interface) if found.is_empty() => Ok((wireless, interface)),
        other => {
            let count = found.len() + usize::from(other.is_some());
            let error = io::Error::other(format!("{count} wireless interfaces instead of one"));
            Err(LabError::io(format!("finding the radio in {netns}"))(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_module_error_names_reason_and_remedy() {
        let reason = refusal(b"\nmodprobe: FATAL: Module mac80211_hwsim not found in directory\n");
        assert_eq!(reason, "FATAL: Module mac80211_hwsim not found in directory");
        let LabError::Unsupported(text) = unsupported(&reason) else { panic!("{reason}") };
        for part in [&reason, "modprobe mac80211_hwsim radios=0", "forced:N"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(refusal(b"\n"), "modprobe gave no reason");
    }

    #[test]
    fn longest_lab_name_fits_an_ssid() {
        assert!(network(&"x".repeat(20)).name.len() <= 32);
    }
}
