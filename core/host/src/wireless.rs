//! Wireless interfaces: /proc/net/wireless (net/wireless/wext-proc.c in the kernel) and the output
//! of `iw dev X survey dump` (survey.c in iw).

/// Maximum number of interfaces or channels; no machine has more.
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

/// Reads the output of `iw dev X survey dump`.
pub fn survey(text: &str) -> Vec<Channel> {
    let mut channels: Vec<Channel> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("Survey data from ") {
            if channels.len() == MAX_ENTRIES {
                break;
            }
            channels.push(Channel::default());
            continue;
        }
        let (Some(channel), Some((key, value))) = (channels.last_mut(), line.split_once(':'))
        else {
            continue;
        };
        let number = value.split_ascii_whitespace().next();
        let ms = number.and_then(|number| number.parse().ok());
        match key.trim() {
            "frequency" => {
                channel.frequency_mhz = number.and_then(|mhz| mhz.parse().ok()).unwrap_or(0);
                channel.in_use = value.contains("[in use]");
            }
            "noise" => {
                let dbm = number.and_then(|dbm| dbm.parse::<f64>().ok());
                channel.noise_dbm = dbm.filter(|dbm| dbm.is_finite());
            }
            "channel active time" => channel.active_ms = ms,
            "channel busy time" => channel.busy_ms = ms,
            "channel receive time" => channel.receive_ms = ms,
            "channel transmit time" => channel.transmit_ms = ms,
            _ => {}
        }
    }
    channels.retain(|channel| channel.frequency_mhz > 0);
    channels
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

    const WIRELESS: &str = "\
Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE
 face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22
 wlan0: 0000   54.  -56.  -256        0      0      0      3      0        0
 wlan1: 0000   70.   37.  -95.        0      0      0      0      0        0
";

    const SURVEY: &str = "\
Survey data from wlan0
\tfrequency:\t\t\t2412 MHz
\tnoise:\t\t\t\t-92 dBm
Survey data from wlan0
\tfrequency:\t\t\t2452 MHz [in use]
\tnoise:\t\t\t\t-95 dBm
\tchannel active time:\t\t1200 ms
\tchannel busy time:\t\t300 ms
\tchannel receive time:\t\t200 ms
\tchannel transmit time:\t\t50 ms
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
    fn recorded_survey_gives_all_channels() {
        let read = survey(SURVEY);
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].frequency_mhz, read[0].in_use), (2_412, false));
        assert_eq!((read[0].noise_dbm, read[0].active_ms), (Some(-92.0), None));
        let used = &read[1];
        assert!(used.in_use);
        assert_eq!((used.active_ms, used.busy_ms), (Some(1_200), Some(300)));
        assert_eq!((used.receive_ms, used.transmit_ms), (Some(200), Some(50)));
    }

    #[test]
    fn empty_table_has_no_radios() {
        assert_eq!(radios(&WIRELESS.lines().take(2).collect::<Vec<_>>().join("\n")), []);
        assert_eq!(survey("command failed: Operation not supported (-95)"), []);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "(\\PC|\n){0,200}") {
            let _ = (radios(&text), survey(&text));
            let _ = survey(&format!("Survey data from w\n{text}"));
        }
    }
}
