//! Wireless interfaces in /proc/net/wireless (net/wireless/wext-proc.c in the kernel), which does not
//! list interfaces in ad hoc mode, and Wi-Fi channels.

use std::ops::RangeInclusive;

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

/// Reads /proc/net/wireless.
pub fn radios(text: &str) -> Vec<Radio> {
    let rows = text.lines().filter_map(|line| {
        let (interface, rest) = line.split_once(':')?;
        let interface = interface_name(interface)?;
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

/// Parses an interface name by the kernel's rules (dev_valid_name in net/core/dev.c).
pub(crate) fn interface_name(text: &str) -> Option<String> {
    let text = text.trim();
    let is_name = (1..16).contains(&text.len()) && !text.contains(['/', ' ', '|']);
    is_name.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    #[test]
    fn five_nearest_channels_are_neighbours() {
        assert_eq!(neighbouring_channels(2_452), [2_437, 2_442, 2_447, 2_457, 2_462]);
        assert_eq!(neighbouring_channels(2_412), [2_417, 2_422, 2_427, 2_432, 2_437]);
        assert_eq!(neighbouring_channels(5_745), [5_700, 5_720, 5_765, 5_785, 5_805]);
        assert_eq!(neighbouring_channels(2_484), [0_u32; 0]);
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
    }
}
