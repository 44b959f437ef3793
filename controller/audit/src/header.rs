//! Meaning and unit of columns by their names.

use crate::statistic::Statistic;
use crate::table::Role;
use crate::unit::Unit;

/// Words of names of send times, in English, German, Dutch, French and Spanish.
const SENT: &[&str] = &[
    "sent",
    "send",
    "sending",
    "tx",
    "transmit",
    "transmitted",
    "departure",
    "departed",
    "start",
    "started",
    "begin",
    "request",
    "requested",
    "req",
    "t1",
    "gesendet",
    "senden",
    "sendezeit",
    "zenden",
    "verzonden",
    "envoi",
    "envoye",
    "enviado",
];
/// Words of names of receive times.
const RECEIVED: &[&str] = &[
    "received",
    "receive",
    "recv",
    "recvd",
    "rcvd",
    "rx",
    "arrival",
    "arrived",
    "end",
    "ended",
    "stop",
    "reply",
    "replied",
    "response",
    "resp",
    "answer",
    "ack",
    "t4",
    "empfangen",
    "empfang",
    "ontvangen",
    "ontvangst",
    "recu",
    "reception",
    "recibido",
];
/// Words of names of delays.
const LATENCY: &[&str] = &[
    "latency",
    "latencies",
    "rtt",
    "rtts",
    "delay",
    "roundtrip",
    "owd",
    "lag",
    "ping",
    "latentie",
    "latenz",
    "latence",
    "latencia",
    "vertraging",
    "verzoegerung",
    "delai",
];
/// Words that end the name of a delay only together with a unit.
const DURATION: &[&str] = &["duration", "elapsed", "time", "zeit", "tijd", "temps", "took"];
/// Words of names of counters.
const ID: &[&str] = &[
    "id",
    "ids",
    "seq",
    "sequence",
    "number",
    "no",
    "nr",
    "num",
    "index",
    "idx",
    "row",
    "packet",
    "pkt",
    "trial",
    "attempt",
    "poging",
    "sample",
    "cycle",
    "iteration",
    "run",
    "n",
    "i",
    "count",
];
/// Words of names of times that do not say of what.
const TIME: &[&str] = &[
    "time",
    "timestamp",
    "timestamps",
    "ts",
    "stamp",
    "date",
    "datetime",
    "t",
    "clock",
    "tijdstip",
    "zeitstempel",
];
/// Words that make another quantity of a name.
const NOT_TIME: &[&str] = &[
    "bytes",
    "byte",
    "packets",
    "size",
    "rate",
    "loss",
    "lost",
    "errors",
    "bits",
    "bandwidth",
    "port",
    "ip",
    "addr",
    "address",
    "host",
    "type",
    "status",
    "code",
    "state",
];

/// Words of names of counts.
const COUNTS: &[&str] = &[
    "packets",
    "packet",
    "pkts",
    "bytes",
    "frames",
    "messages",
    "errors",
    "lost",
    "losses",
    "drops",
    "dropped",
    "retries",
    "retransmissions",
    "retransmits",
    "requests",
    "replies",
    "timeouts",
    "samples",
    "trials",
    "events",
    "connections",
    "count",
    "counts",
    "pakete",
    "pakketten",
    "anzahl",
    "aantal",
];
/// Words that make a rate or a statistic of a count.
const NOT_COUNTS: &[&str] =
    &["per", "rate", "ratio", "share", "percent", "pct", "mean", "average", "avg", "median", "sd"];

/// Whether a name is that of a count, such as `packets` or `bytes_sent`.
pub(crate) fn is_count(name: &str) -> bool {
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    has(COUNTS) && !has(NOT_COUNTS) && !name.contains(['/', '%'])
}

/// Meaning that a name suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    Id,
    Sent,
    Received,
    Latency,
    /// A delay if it is a number in a unit of time.
    Duration,
    /// A time of an event that the name does not state.
    Time,
}

impl Hint {
    /// Role for this meaning.
    pub(crate) const fn role(self) -> Role {
        match self {
            Self::Id => Role::Id,
            Self::Sent | Self::Time => Role::Sent,
            Self::Received => Role::Received,
            Self::Latency | Self::Duration => Role::Latency,
        }
    }
}

/// Returns the meaning that a column's name suggests; `None` if none.
pub(crate) fn hint(name: &str) -> Option<Hint> {
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    if is_other(name) {
        return None;
    }
    let pair = |a: &str, b: &str| words.windows(2).any(|two| two[0] == a && two[1] == b);
    let is_round_trip = pair("round", "trip");
    let is_response_time =
        ["response", "reply", "ping", "travel", "transit"].iter().any(|word| pair(word, "time"));
    if has(LATENCY) || is_round_trip || is_response_time {
        return Some(Hint::Latency);
    }
    match (has(SENT), has(RECEIVED)) {
        (true, false) => return Some(Hint::Sent),
        (false, true) => return Some(Hint::Received),
        _ => {}
    }
    let lone = words.len() == 1
        || words.len() == 2 && words.last().is_some_and(|word| Unit::parse(word).is_some());
    if has(DURATION) && unit(name).is_some() {
        return Some(Hint::Duration);
    }
    if has(TIME) {
        return Some(Hint::Time);
    }
    if has(ID) && (lone || words.len() <= 3) {
        return Some(Hint::Id);
    }
    (name.trim() == "#").then_some(Hint::Id)
}

/// Whether a word of a name makes another quantity of it than a time.
pub(crate) fn is_other(name: &str) -> bool {
    words(name).iter().any(|word| NOT_TIME.contains(&word.as_str()))
}

/// The statistic in the name of a column of summaries, and the other words: `rtt_min_ms` is the
/// minimum of `rtt`.
pub(crate) fn statistic(name: &str) -> Option<(Statistic, String)> {
    let plain = match bracketed(name) {
        Some(_) => name
            .trim()
            .trim_end_matches([')', ']'])
            .rsplit_once(['(', '['])
            .map_or(name, |parts| parts.0),
        None => name,
    };
    let mut words = words(plain);
    // "p99.9" and "p99_9" are two words each.
    for at in (1..words.len()).rev() {
        let is_percentile = words[at - 1].strip_prefix('p').is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        if is_percentile && words[at].bytes().all(|byte| byte.is_ascii_digit()) {
            let decimals = words.remove(at);
            words[at - 1] = format!("{}.{decimals}", words[at - 1]);
        }
    }
    let found = words.iter().enumerate().find_map(|(at, word)| {
        // "received" and "rows" are names of other columns.
        let statistic =
            Statistic::parse(word).filter(|_| !matches!(word.as_str(), "received" | "rows"))?;
        Some((at, statistic))
    });
    let (at, statistic) = found?;
    words.remove(at);
    words.retain(|word| Unit::parse(word).is_none());
    Some((statistic, words.join(" ")))
}

/// Unit in a name: `rtt_ms`, `rtt [ms]`, `rtt (ms)`, `rtt/ms`, `rttMs`.
pub(crate) fn unit(name: &str) -> Option<Unit> {
    if let Some(inside) = bracketed(name) {
        return Unit::parse(inside);
    }
    let words = words(name);
    let last = words.last().filter(|_| words.len() > 1)?;
    // "rtt_min" is a minimum, not minutes.
    Unit::parse(last).filter(|_| !matches!(last.as_str(), "min" | "mins" | "h"))
}

/// Whether a name states a unit in brackets that is no unit of time.
pub(crate) fn foreign_unit(name: &str) -> Option<&str> {
    bracketed(name).filter(|inside| Unit::parse(inside).is_none() && inside.len() <= 12)
}

fn bracketed(name: &str) -> Option<&str> {
    let name = name.trim();
    let open = match name.chars().last()? {
        ']' => '[',
        ')' => '(',
        _ => return None,
    };
    let start = name.rfind(open)?;
    let inside = name[start + 1..name.len() - 1].trim();
    (!inside.is_empty()).then_some(inside)
}

/// Words of a name in lower case: split at other characters than letters and digits, and before
/// capitals.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_is_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() && c != '\u{b5}' {
            words.push(String::new());
            before_is_small = false;
            continue;
        }
        if c.is_uppercase() && before_is_small {
            words.push(String::new());
        }
        before_is_small = c.is_lowercase();
        if let Some(word) = words.last_mut() {
            let plain = match c {
                '\u{e9}' | '\u{e8}' | '\u{c9}' => 'e',
                '\u{e7}' => 'c',
                other => other,
            };
            word.extend(plain.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_have_their_meaning() {
        for (name, wanted) in [
            ("sent", Some(Hint::Sent)),
            ("t_sent", Some(Hint::Sent)),
            ("Tijdstip zenden", Some(Hint::Sent)),
            ("Tijdstip ontvangen", Some(Hint::Received)),
            ("tx_app_ns", Some(Hint::Sent)),
            ("rxTime", Some(Hint::Received)),
            ("Latentie (ms)", Some(Hint::Latency)),
            ("roundtrip_time [s]", Some(Hint::Latency)),
            ("Round trip (us)", Some(Hint::Latency)),
            ("Response time (ms)", Some(Hint::Latency)),
            ("time_ms", Some(Hint::Duration)),
            ("time", Some(Hint::Time)),
            ("icmp_seq", Some(Hint::Id)),
            ("#", Some(Hint::Id)),
            ("bytes_sent", None),
            ("size", None),
            ("protocol", None),
        ] {
            assert_eq!(hint(name), wanted, "{name}");
        }
    }

    #[test]
    fn names_of_summaries_have_a_statistic() {
        for (name, statistic, rest) in [
            ("rtt_min_ms", Statistic::Min, "rtt"),
            ("MAX (us)", Statistic::Max, ""),
            ("tcp p99.9 [ms]", Statistic::Percentile(99.9), "tcp"),
            ("n", Statistic::Count, ""),
        ] {
            assert_eq!(super::statistic(name), Some((statistic, rest.to_owned())), "{name}");
        }
        assert_eq!(super::statistic("latency_ms"), None);
    }

    #[test]
    fn units_are_found_in_names() {
        for (name, wanted) in [
            ("latency_ms", Some(Unit::Millis)),
            ("rttMs", Some(Unit::Millis)),
            ("rtt/us", Some(Unit::Micros)),
            ("roundtrip_time [s]", Some(Unit::Seconds)),
            ("Delay (\u{b5}s)", Some(Unit::Micros)),
            ("rtt_min", None),
            ("latency", None),
            ("ms", None),
        ] {
            assert_eq!(unit(name), wanted, "{name}");
        }
        assert_eq!(foreign_unit("delay [furlongs]"), Some("furlongs"));
    }
}
