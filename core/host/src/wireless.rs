//! Wireless interfaces: /proc/net/wireless (net/wireless/wext-proc.c in the kernel), which has no
//! interfaces in ad hoc mode, and messages of nl80211 (linux/nl80211.h), which has all.

use std::ops::RangeInclusive;

use crate::netlink;

/// Maximum number of interfaces; no machine has more.
const MAX_ENTRIES: usize = 256;

/// Current reception of a wireless interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Radio {
    /// Interface name.
    pub interface: String,
    /// Link quality, in units of the driver.
    pub quality: Option<f64>,
    /// Received signal strength (RSSI) in dBm; absent if the driver does not use dBm.
    pub signal_dbm: Option<f64>,
    /// Noise level in dBm; absent if the driver does not use dBm.
    pub noise_dbm: Option<f64>,
}

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

/// Reads /proc/net/wireless.
pub fn radios(text: &str) -> Vec<Radio> {
    let rows = text.lines().filter_map(|line| {
        let (interface, rest) = line.split_once(':')?;
        let interface = name(interface)?;
        // A status, then levels; a dot marks those updated since the last read.
        let mut words = rest.split_ascii_whitespace().skip(1);
        let mut level = || words.next()?.trim_end_matches('.').parse::<f64>().ok();
        let (quality, signal, noise) = (level(), level(), level());
        // Drivers without dBm report values from 0 up; -256 means unknown.
        let dbm = |level: Option<f64>| level.filter(|level| (-255.0..0.0).contains(level));
        let (signal_dbm, noise_dbm) = (dbm(signal), dbm(noise));
        Some(Radio { interface, quality: quality.filter(|q| q.is_finite()), signal_dbm, noise_dbm })
    });
    rows.take(MAX_ENTRIES).collect()
}

/// Attributes of nl80211 messages (enum nl80211_attrs in linux/nl80211.h).
mod attribute {
    pub(super) const WIPHY: u16 = 1;
    pub(super) const IFINDEX: u16 = 3;
    pub(super) const IFNAME: u16 = 4;
    pub(super) const MAC: u16 = 6;
    pub(super) const STA_INFO: u16 = 21;
    pub(super) const WIPHY_FREQ: u16 = 38;
    pub(super) const BSS: u16 = 47;
    pub(super) const SURVEY_INFO: u16 = 84;
}

impl WirelessInterface {
    /// Reads the attributes of an NL80211_CMD_NEW_INTERFACE; `None` without an interface, as for a
    /// P2P device.
    pub fn parse(attributes: &[u8]) -> Option<Self> {
        let number = |kind| netlink::attribute(attributes, kind).and_then(netlink::u32_of);
        Some(Self {
            index: number(attribute::IFINDEX)?,
            name: name(&netlink::text_of(netlink::attribute(attributes, attribute::IFNAME)?))?,
            radio: number(attribute::WIPHY)?,
            frequency_mhz: number(attribute::WIPHY_FREQ),
        })
    }
}

impl Network {
    /// Reads the attributes of an answer to NL80211_CMD_GET_SCAN (enum nl80211_bss).
    pub fn parse(attributes: &[u8]) -> Option<Self> {
        const FREQUENCY: u16 = 2;
        const SIGNAL_MBM: u16 = 7;
        const SEEN_MS_AGO: u16 = 10;
        let bss = netlink::attribute(attributes, attribute::BSS)?;
        let number = |kind| netlink::attribute(bss, kind).and_then(netlink::u32_of);
        let signal = number(SIGNAL_MBM).map(|mbm| f64::from(mbm.cast_signed()) / 100.0);
        Some(Self {
            frequency_mhz: number(FREQUENCY)?,
            signal_dbm: signal.filter(|dbm| *dbm < 0.0),
            age_ms: number(SEEN_MS_AGO)?,
        })
    }
}

/// Number of neighbouring channels that a scan covers (Miya 2020).
const NEIGHBOURS: usize = 5;

/// Returns the frequencies in MHz of the five channels nearest to that of `frequency`, itself
/// excluded; empty outside the bands of 2.4 GHz (channels 1 to 13) and 5 GHz.
pub fn neighbouring_channels(frequency: u32) -> Vec<u32> {
    let steps = |ranges: &[RangeInclusive<u32>], step| -> Vec<u32> {
        ranges.iter().cloned().flat_map(|range| range.step_by(step)).collect()
    };
    let bands =
        [steps(&[2_412..=2_472], 5), steps(&[5_180..=5_320, 5_500..=5_720, 5_745..=5_825], 20)];
    let band = bands.into_iter().find(|band| band.contains(&frequency));
    let mut others = band.unwrap_or_default();
    others.retain(|other| *other != frequency);
    others.sort_by_key(|other| other.abs_diff(frequency));
    others.truncate(NEIGHBOURS);
    others.sort_unstable();
    others
}

impl Station {
    /// Reads the attributes of an NL80211_CMD_NEW_STATION (enum nl80211_sta_info).
    pub fn parse(attributes: &[u8]) -> Option<Self> {
        const SIGNAL: u16 = 7;
        let address = netlink::attribute(attributes, attribute::MAC)?.try_into().ok()?;
        let information = netlink::attribute(attributes, attribute::STA_INFO).unwrap_or_default();
        // The kernel leaves it out unless the driver uses dBm. 0 and more is not a received level.
        let signal = netlink::attribute(information, SIGNAL).and_then(level);
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
        let survey = netlink::attribute(attributes, attribute::SURVEY_INFO)?;
        let value = |kind| netlink::attribute(survey, kind);
        let ms = |kind| value(kind)?.try_into().ok().map(u64::from_ne_bytes);
        Some(Self {
            frequency_mhz: value(FREQUENCY).and_then(netlink::u32_of).filter(|mhz| *mhz > 0)?,
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

/// Parses an interface name by the kernel's rules (dev_valid_name in net/core/dev.c).
fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let is_name = (1..16).contains(&text.len()) && !text.contains(['/', ' ', '|']);
    is_name.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::Attributes;

    const WIRELESS: &str = "\
Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE
 face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22
 wlan0: 0000   54.  -56.  -256        0      0      0      3      0        0
 wlan1: 0000   70.   37.  -95.        0      0      0      0      0        0
";

    #[test]
    fn recorded_table_gives_the_signal_strength() {
        let read = radios(WIRELESS);
        assert_eq!(read.len(), 2, "the header lines are skipped");
        let Radio { interface, quality, signal_dbm, noise_dbm } = &read[0];
        assert_eq!((interface.as_str(), *quality), ("wlan0", Some(54.0)));
        assert_eq!((*signal_dbm, *noise_dbm), (Some(-56.0), None), "-256 is unknown");
        assert_eq!(read[1].signal_dbm, None, "37 is not in dBm");
    }

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
    fn five_nearest_channels_are_neighbours() {
        assert_eq!(neighbouring_channels(2_452), [2_437, 2_442, 2_447, 2_457, 2_462]);
        assert_eq!(neighbouring_channels(2_412), [2_417, 2_422, 2_427, 2_432, 2_437]);
        assert_eq!(neighbouring_channels(5_745), [5_700, 5_720, 5_765, 5_785, 5_805]);
        assert_eq!(neighbouring_channels(2_484), [0_u32; 0]);
    }

    #[test]
    fn interface_message_names_the_radio() {
        let message = Attributes::default().with_u32(3, 5).with(4, b"wlan0\0").with_u32(1, 2);
        let read = WirelessInterface::parse(message.as_bytes()).unwrap();
        assert_eq!((read.index, read.name.as_str(), read.radio), (5, "wlan0", 2));
        let p2p = Attributes::default().with_u32(1, 2);
        assert_eq!(WirelessInterface::parse(p2p.as_bytes()), None);
    }

    #[test]
    fn empty_table_has_no_radios() {
        assert_eq!(radios(&WIRELESS.lines().take(2).collect::<Vec<_>>().join("\n")), []);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "(\\PC|\n){0,200}") {
            let _ = radios(&text);
        }

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
