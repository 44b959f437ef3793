//! A scan of the radio channels beside the one in use, before the first packet: the radio leaves its
//! channel for it.

use std::net::SocketAddr;

use dwell_host::scan_sample;
use dwell_io::clock;
use dwell_io::interface;
use dwell_io::wireless::{self, Wireless};

use crate::observation_writer::ObservationWriter;

/// Driver of simulated radios, whose other channels are always empty.
const SIMULATOR: &str = "mac80211_hwsim";

/// Scans the channels beside that of the radio that leads to `peer`, and records their networks.
/// The error says why they are not recorded.
pub(super) fn neighbouring_channels(
    peer: SocketAddr,
    log: &mut ObservationWriter,
) -> Result<(), String> {
    let towards = interface::towards(peer).ok().flatten();
    let towards = towards.ok_or_else(|| format!("no interface leads to {}", peer.ip()))?;
    let name = &towards.name;
    if towards.driver.as_deref() == Some(SIMULATOR) {
        return Err(format!("the radio of {name} is simulated and receives no other channel"));
    }
    let wireless = Wireless::open().map_err(|error| format!("cannot open nl80211: {error}"))?;
    let wireless = wireless.ok_or_else(|| format!("{name} is not wireless"))?;
    let interfaces =
        wireless.interfaces().map_err(|error| format!("cannot list radios: {error}"))?;
    let found = interfaces.into_iter().find(|radio| radio.index == towards.index);
    let found = found.ok_or_else(|| format!("{name} is not wireless"))?;
    let frequency = found.frequency_mhz.ok_or_else(|| format!("{name} is on no channel"))?;
    let channels = wireless::neighbouring_channels(frequency);
    if channels.is_empty() {
        return Err(format!("the channel of {name} at {frequency} MHz has no known neighbours"));
    }
    let at = clock::realtime();
    let networks = wireless
        .scan(found.index, &channels)
        .map_err(|error| format!("cannot scan with {name}: {error}"))?;
    log.host(&scan_sample(at, name, &channels, &networks));
    Ok(())
}
