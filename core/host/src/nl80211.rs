//! nl80211, the netlink interface of the kernel's Wi-Fi drivers: numbers of commands and attributes
//! (linux/nl80211.h) and parsers of messages. It covers interfaces in every mode.

use crate::netlink::{attribute, text_of, u32_of};
use crate::wireless::interface_name;

/// Name of the generic netlink family.
pub const FAMILY: &str = "nl80211";
/// Multicast group that receives the events of scans.
pub const SCAN_GROUP: &str = "scan";

/// Lists interfaces.
pub const CMD_GET_INTERFACE: u8 = 5;
/// Changes an interface, such as its mode.
pub const CMD_SET_INTERFACE: u8 = 6;
/// Lists the stations in reach of an interface.
pub const CMD_GET_STATION: u8 = 17;
/// Lists the networks that scans received.
pub const CMD_GET_SCAN: u8 = 32;
/// Starts a scan.
pub const CMD_TRIGGER_SCAN: u8 = 33;
/// Event: a scan ended.
pub const CMD_NEW_SCAN_RESULTS: u8 = 34;
/// Event: a scan was aborted.
pub const CMD_SCAN_ABORTED: u8 = 35;
/// Joins or creates an ad hoc network.
pub const CMD_JOIN_IBSS: u8 = 43;
/// Moves a radio to another network namespace.
pub const CMD_SET_WIPHY_NETNS: u8 = 49;
/// Lists the channel surveys of an interface.
pub const CMD_GET_SURVEY: u8 = 50;

/// Index of the radio (wiphy), u32.
pub const ATTR_WIPHY: u16 = 1;
/// Index of the interface, u32.
pub const ATTR_IFINDEX: u16 = 3;
/// Name of the interface, text.
pub const ATTR_IFNAME: u16 = 4;
/// Mode of the interface, u32 (enum nl80211_iftype).
pub const ATTR_IFTYPE: u16 = 5;
/// Hardware address of a station or BSSID, 6 bytes.
pub const ATTR_MAC: u16 = 6;
/// Station, nested (enum nl80211_sta_info).
pub const ATTR_STA_INFO: u16 = 21;
/// Centre frequency in MHz, u32.
pub const ATTR_WIPHY_FREQ: u16 = 38;
/// Width of the channel, u32 (enum nl80211_channel_type).
pub const ATTR_WIPHY_CHANNEL_TYPE: u16 = 39;
/// Frequencies to scan in MHz, nested u32.
pub const ATTR_SCAN_FREQUENCIES: u16 = 44;
/// Network that a scan received, nested (enum nl80211_bss).
pub const ATTR_BSS: u16 = 47;
/// Name of the network, at most 32 bytes.
pub const ATTR_SSID: u16 = 52;
/// Flag: an ad hoc network stays on its channel.
pub const ATTR_FREQ_FIXED: u16 = 60;
/// Channel survey, nested (enum nl80211_survey_info).
pub const ATTR_SURVEY_INFO: u16 = 84;
/// Descriptor of a network namespace, u32.
pub const ATTR_NETNS_FD: u16 = 219;

/// Ad hoc mode (IBSS).
pub const IFTYPE_ADHOC: u32 = 1;
/// Channel of 20 MHz with the rates of 802.11n.
pub const CHAN_HT20: u32 = 1;

/// An interface of a radio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WirelessInterface {
    /// Index of the interface, unique in its network namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Index of its radio (wiphy).
    pub radio: u32,
    /// Centre frequency of the channel in use, in MHz.
    pub frequency_mhz: Option<u32>,
}

/// A network that a scan received.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Frequency of its channel in MHz.
    pub frequency_mhz: u32,
    /// Signal strength of its last beacon in dBm; absent if the driver does not use dBm.
    pub signal_dbm: Option<f64>,
    /// Age of that beacon in milliseconds.
    pub age_ms: u32,
}

/// Another station of the network that an interface is in: the access point, or each node of an ad
/// hoc network.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// Hardware address.
    pub address: [u8; 6],
    /// Received signal strength (RSSI) of its last frame in dBm; absent if the driver does not use
    /// dBm, or has received none.
    pub signal_dbm: Option<f64>,
}

/// Survey of one channel. Times count since the interface was enabled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Channel {
    /// Frequency in MHz.
    pub frequency_mhz: u32,
    /// Whether the channel is in use.
    pub in_use: bool,
    /// Noise level in dBm.
    pub noise_dbm: Option<f64>,
    /// Time on the channel in milliseconds.
    pub active_ms: Option<u64>,
    /// Part of `active_ms` for which the channel was sensed busy.
    pub busy_ms: Option<u64>,
    /// Part of `active_ms` spent receiving.
    pub receive_ms: Option<u64>,
    /// Part of `active_ms` spent transmitting.
    pub transmit_ms: Option<u64>,
}

impl WirelessInterface {
    /// Reads the attributes of an NL80211_CMD_NEW_INTERFACE; `None` without an interface, as for a
    /// P2P device.
    pub fn parse(attributes: &[u8]) -> Option<Self> {
        let number = |kind| attribute(attributes, kind).and_then(u32_of);
        Some(Self {
            index: number(ATTR_IFINDEX)?,
            name: interface_name(&text_of(attribute(attributes, ATTR_IFNAME)?))?,
            radio: number(ATTR_WIPHY)?,
            frequency_mhz: number(ATTR_WIPHY_FREQ),
        })
    }
}

impl Network {
    /// Reads the attributes of an answer to NL80211_CMD_GET_SCAN (enum nl80211_bss).
    pub fn parse(attributes: &[u8]) -> Option<Self> {
        const FREQUENCY: u16 = 2;
        const SIGNAL_MBM: u16 = 7;
        const SEEN_MS_AGO: u16 = 10;
        let bss = attribute(attributes, ATTR_BSS)?;
        let number = |kind| attribute(bss, kind).and_then(u32_of);
        let signal = number(SIGNAL_MBM).map(|mbm| f64::from(mbm.cast_signed()) / 100.0);
        Some(Self {
            frequency_mhz: number(FREQUENCY)?,
            signal_dbm: signal.filter(|dbm| *dbm < 0.0),
            age_ms: number(SEEN_MS_AGO)?,
        })
    }
}

impl Station {
    /// Reads the attributes of an NL80211_CMD_NEW_STATION (enum nl80211_sta_info).
    pub fn parse(attributes: &[u8]) -> Option<Self> {
        const SIGNAL: u16 = 7;
        let address = attribute(attributes, ATTR_MAC)?.try_into().ok()?;
        let information = attribute(attributes, ATTR_STA_INFO).unwrap_or_default();
        // Absent unless the driver uses dBm. A level of 0 dBm or more is not that of a received frame.
        let signal = attribute(information, SIGNAL).and_then(level);
        Some(Self { address, signal_dbm: signal.filter(|dbm| *dbm < 0.0) })
    }
}

impl Channel {
    /// Reads the attributes of an answer to NL80211_CMD_GET_SURVEY (enum nl80211_survey_info).
    pub fn parse(attributes: &[u8]) -> Option<Self> {
        const FREQUENCY: u16 = 1;
        const NOISE: u16 = 2;
        const IN_USE: u16 = 3;
        const TIME: u16 = 4;
        const TIME_BUSY: u16 = 5;
        const TIME_RX: u16 = 7;
        const TIME_TX: u16 = 8;
        let survey = attribute(attributes, ATTR_SURVEY_INFO)?;
        let value = |kind| attribute(survey, kind);
        let ms = |kind| value(kind)?.try_into().ok().map(u64::from_ne_bytes);
        Some(Self {
            frequency_mhz: value(FREQUENCY).and_then(u32_of).filter(|mhz| *mhz > 0)?,
            in_use: value(IN_USE).is_some(),
            noise_dbm: value(NOISE).and_then(level),
            active_ms: ms(TIME),
            busy_ms: ms(TIME_BUSY),
            receive_ms: ms(TIME_RX),
            transmit_ms: ms(TIME_TX),
        })
    }
}

/// Reads a level in dBm, a signed byte.
fn level(value: &[u8]) -> Option<f64> {
    let [byte] = *value else { return None };
    Some(f64::from(byte.cast_signed()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::Attributes;

    fn survey() -> Attributes {
        let survey = Attributes::default()
            .with_u32(1, 2_452)
            .with(2, &[(-95_i8).cast_unsigned()])
            .with(3, &[])
            .with(4, &1_200_u64.to_ne_bytes())
            .with(5, &300_u64.to_ne_bytes())
            .with(7, &200_u64.to_ne_bytes());
        Attributes::default().with_u32(3, 7).with(84, survey.as_bytes())
    }

    #[test]
    fn survey_message_gives_levels_and_times() {
        let read = Channel::parse(survey().as_bytes()).unwrap();
        assert_eq!((read.frequency_mhz, read.in_use), (2_452, true));
        assert_eq!(
            (read.noise_dbm, read.active_ms, read.busy_ms),
            (Some(-95.0), Some(1_200), Some(300))
        );
        assert_eq!((read.receive_ms, read.transmit_ms), (Some(200), None));
        assert_eq!(Channel::parse(&[]), None);
    }

    #[test]
    fn station_message_gives_the_signal_of_a_node() {
        let of = |signal: &[u8]| {
            let information = Attributes::default().with(7, signal);
            let address = [2, 0x64, 0x77, 0xff, 0, 2];
            let message = Attributes::default().with(6, &address).with(21, information.as_bytes());
            Station::parse(message.as_bytes()).unwrap()
        };
        let read = of(&[(-30_i8).cast_unsigned()]);
        assert_eq!((read.address[5], read.signal_dbm), (2, Some(-30.0)));
        for none in [&[][..], &[0], &[40], &[1, 2]] {
            assert_eq!(of(none).signal_dbm, None, "{none:?}");
        }
        assert_eq!(Station::parse(Attributes::default().with(6, &[1]).as_bytes()), None);
    }

    #[test]
    fn network_message_gives_signal_and_age() {
        let signal = (-7_150_i32).cast_unsigned();
        let bss = Attributes::default().with_u32(2, 2_447).with_u32(7, signal).with_u32(10, 40);
        let message = Attributes::default().with(47, bss.as_bytes());
        let read = Network::parse(message.as_bytes()).unwrap();
        assert_eq!(read, Network { frequency_mhz: 2_447, signal_dbm: Some(-71.5), age_ms: 40 });
    }

    #[test]
    fn interface_message_names_the_radio() {
        let message = Attributes::default().with_u32(3, 5).with(4, b"wlan0\0").with_u32(1, 2);
        let read = WirelessInterface::parse(message.as_bytes()).unwrap();
        assert_eq!((read.index, read.name.as_str(), read.radio), (5, "wlan0", 2));
        let p2p = Attributes::default().with_u32(1, 2);
        assert_eq!(WirelessInterface::parse(p2p.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn any_message_is_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = (WirelessInterface::parse(&bytes), Station::parse(&bytes));
            let nested = Attributes::default().with(6, &[0; 6]);
            let nested = nested.with(21, &bytes).with(47, &bytes).with(84, &bytes);
            let nested = nested.as_bytes();
            let _ = (Station::parse(nested), Channel::parse(nested), Network::parse(nested));
        }
    }
}
