//! Rows of frames: the report of ESP-IDF, whose columns are separated by `|`, and CSV.

use super::{FtmResults, RoundTrip, mac_address};

/// Columns that count, with their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// Round trip in picoseconds.
    Rtt,
    /// Round trip in nanoseconds.
    RttNanos,
    T1,
    T2,
    T3,
    T4,
    /// MAC address of the responder.
    Peer,
    /// 0 or a word for success.
    Status,
}

impl Field {
    /// `wifi_ftm_report_entry_t` of ESP-IDF has `rtt` and `t1` to `t4` in picoseconds,
    /// `wifi_event_ftm_report_t` has `rtt_raw` and `rtt_est` in nanoseconds.
    fn named(name: &str) -> Option<Self> {
        let name = name.trim().trim_matches('"').to_ascii_lowercase();
        Some(match name.as_str() {
            "rtt" | "rtt_ps" | "rtt_psec" | "rtt [ps]" | "rtt(ps)" => Self::Rtt,
            "rtt_raw" | "rtt_ns" | "rtt_nsec" | "rtt [ns]" | "rtt(ns)" => Self::RttNanos,
            "t1" | "t1_ps" => Self::T1,
            "t2" | "t2_ps" => Self::T2,
            "t3" | "t3_ps" => Self::T3,
            "t4" | "t4_ps" => Self::T4,
            "peer" | "peer_mac" | "mac" | "bssid" => Self::Peer,
            "status" => Self::Status,
            _ => return None,
        })
    }
}

/// Reads rows line by line.
#[derive(Debug, Default)]
pub(super) struct Reader {
    header: Option<Header>,
    /// Peer of the session, as named by the log.
    session: Option<usize>,
}

#[derive(Debug)]
struct Header {
    separator: char,
    fields: Vec<Option<Field>>,
}

impl Header {
    fn of(line: &str) -> Option<Self> {
        let separator = ['|', ',', ';', '\t'].into_iter().find(|&s| line.contains(s));
        // A CSV may have one column.
        let separator = separator.unwrap_or(',');
        let fields: Vec<_> = line.split(separator).map(Field::named).collect();
        let has = |field| fields.contains(&Some(field));
        let has_timestamps = [Field::T1, Field::T2, Field::T3, Field::T4].into_iter().all(has);
        let is_header = has(Field::Rtt) || has(Field::RttNanos) || has_timestamps;
        is_header.then_some(Self { separator, fields })
    }
}

impl Reader {
    /// Reads a line. Returns whether it is one of a report.
    pub(super) fn read(&mut self, line: &str, results: &mut FtmResults) -> bool {
        // ESP-IDF precedes each row by the level, time and tag of its log.
        let row = line.find('|').map_or(line, |at| &line[at..]).trim();
        if let Some(header) = Header::of(row) {
            self.header = Some(header);
            return true;
        }
        if let Some(at) = line.find("FTM session with ") {
            let address = line[at..].split_ascii_whitespace().nth(3);
            self.session = address.and_then(|address| results.peer(address)).or(self.session);
            return true;
        }
        if line.contains("FTM procedure with Peer(") && line.contains("failed") {
            results.invalid += 1;
            return true;
        }
        let Some(header) = &self.header else { return false };
        if !row.contains(header.separator) && header.fields.len() > 1 || row.is_empty() {
            return false;
        }
        let row: Vec<_> = row.split(header.separator).map(str::trim).collect();
        // Borders of a table.
        if row.iter().all(|cell| cell.chars().all(|c| c == '-' || c == '+')) {
            return false;
        }
        if row.len() < header.fields.len() {
            // Cut short.
            results.push(None, None);
            return true;
        }
        let of = |field| {
            let at = header.fields.iter().position(|found| *found == Some(field))?;
            row.get(at).map(|cell| cell.trim_matches('"'))
        };
        let peer = match of(Field::Peer) {
            Some(text) if mac_address(text).is_some() => results.peer(text),
            _ => self.session,
        };
        results.push(round_trip(of), peer);
        true
    }
}

/// The round trip of a row.
fn round_trip<'a>(of: impl Fn(Field) -> Option<&'a str>) -> Option<RoundTrip> {
    let succeeded = |status: &str| ["0", "success", "ok"].contains(&&*status.to_ascii_lowercase());
    if !of(Field::Status).is_none_or(succeeded) {
        return None;
    }
    let number = |field| of(field).map(|cell| cell.parse::<i64>().ok());
    let nanos = || of(Field::RttNanos).map(picoseconds);
    // `Some(None)`: there is a column, but no number in it.
    let reported = number(Field::Rtt).or_else(nanos);
    let timestamps = [Field::T1, Field::T2, Field::T3, Field::T4].map(number);
    let has_timestamps = timestamps.iter().all(Option::is_some);
    match (has_timestamps, reported) {
        (true, reported) => {
            let [t1, t2, t3, t4] = timestamps.map(Option::flatten);
            let reported = match reported {
                Some(None) => return None,
                Some(reported) => reported,
                None => None,
            };
            RoundTrip::of_timestamps([t1?, t2?, t3?, t4?], reported)
        }
        (false, reported) => RoundTrip::reported(reported.flatten()?),
    }
}

/// A number of nanoseconds, possibly with decimals, in picoseconds.
fn picoseconds(nanos: &str) -> Option<i64> {
    let nanos: f64 = nanos.parse().ok()?;
    nanos.is_finite().then_some((nanos * 1e3).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows as ESP-IDF logs them; the timestamps are from a public log of two ESP32-C3.
    const LOG: &str = "\
W (3033) wifi:Starting FTM session with DC:54:75:60:bf:69 in 0.077 Sec
W (4553) wifi:FTM session ends with 29 valid readings out of 31, Avg raw RTT: 611.461 nSec, Avg RSSI: -40
I (4553) ftm_station: FTM Report:
I (4563) ftm_station: | Diag |   RTT   |       T1       |       T2       |       T3       |       T4       |  RSSI  |
I (4573) ftm_station: |     6| 576938  |71468718377125  | 3121737385937  | 3121854460937  |71468836029063  |   -41  |
I (4573) ftm_station: |     8| 618938  |71476855377125  | 3129874393750  | 3129979460937  |71476961063250  |   -41  |
I (4593) ftm_station: |     9| 0       |0  | 0  | 0  |0  |   0  |
I (4593) ftm_station: |    10| 617376  |71480865377125  | 3133884396875
I (4603) ftm_station: |    11| 4294960000  |71669716377125  | 6710800000000  | 30675000  |71669833888250  |   -41  |
I (4903) ftm_station: Estimated RTT - 500 nSec, Estimated Distance - 75.00 meters
I (379781) ftm_station: FTM procedure with Peer(1e:cf:24:b2:82:e0) failed! (Status - 2)
";

    #[test]
    fn report_of_esp_idf_is_read_with_its_defects() {
        let results = FtmResults::read(LOG);
        // The fifth frame: 71669833888250 - 71669716377125 - (30675000 - 6710800000000 + wrap).
        let repaired = 117_511_125 - (30_675_000 - 6_710_800_000_000 + super::super::FTM_WRAP_PS);
        assert_eq!(results.rtts_ps(Some(0)), [576_938, 618_938, repaired]);
        assert_eq!(results.peers, ["dc:54:75:60:bf:69"]);
        assert_eq!((results.invalid, results.wrapped), (3, 1));
    }

    #[test]
    fn csv_is_read_by_the_names_of_its_columns() {
        let full = FtmResults::read(
            "dlog_token,rssi,rtt,t1,t2,t3,t4\n\
             6,-41,576938,71468718377125,3121737385937,3121854460937,71468836029063\n\
             7,-41,,71468718377125,3121737385937,3121854460937,71468836029063\n\
             8,-41,576938,x,3121737385937,3121854460937,71468836029063\n",
        );
        assert_eq!((full.rtts_ps(None), full.invalid), (vec![576_938], 2));
        let nanos = FtmResults::read(
            "peer;status;rtt_ns\n02:00:00:00:00:01;SUCCESS;49.218\n02:00:00:00:00:01;4;50\n",
        );
        assert_eq!((nanos.rtts_ps(Some(0)), nanos.invalid), (vec![49_218], 1));
        let single = FtmResults::read("rtt\n31250\n0\n32812\n");
        assert_eq!((single.rtts_ps(None), single.invalid), (vec![31_250, 32_812], 1));
    }

    #[test]
    fn text_without_results_has_none() {
        for text in ["", "hello\nworld\n", "1,2,3\n", "icmp_seq=1 ttl=64 time=0.05 ms\n"] {
            assert_eq!(FtmResults::read(text), FtmResults::default(), "{text}");
        }
    }
}
