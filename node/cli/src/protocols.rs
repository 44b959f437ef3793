//! Texts about protocols in help and messages, from the table of protocols.

use std::collections::BTreeMap;
use std::fmt::Display;

use dwell_engine::protocol::{ProbeDefaults, ProtocolSpec, Scheme};

/// The URLs of the protocols with this property, like `udp:// and tcp://`.
pub(crate) fn urls_with(property: impl Fn(&ProtocolSpec) -> bool) -> String {
    joined(Scheme::with(property).map(|scheme| format!("{scheme}://")), "and")
}

/// Help of the target of `ping`.
pub(crate) fn target_help() -> String {
    let url = |scheme: &Scheme| {
        let spec = scheme.spec();
        match spec.default_port {
            Some(port) => format!("{scheme}://HOST:PORT (default port {port})"),
            None if spec.transport.has_ports() => format!("{scheme}://HOST:PORT"),
            None => format!("{scheme}://HOST"),
        }
    };
    format!(
        "Target: {}. A bare HOST is probed with STAMP if a reflector answers within 1 s (2 s for \
         many addresses), otherwise with ICMP",
        joined(Scheme::ALL.iter().map(url), "or")
    )
}

/// Help of `ping --interval`.
pub(crate) fn interval_help() -> String {
    let paused = Scheme::with(|spec| spec.defaults.closed_loop).map(|scheme| scheme.to_string());
    format!("Time between probes [default: 1s; for {} see --pause]", joined(paused, "and"))
}

/// Help of `ping --size`.
pub(crate) fn size_help() -> String {
    let default = |spec: &ProtocolSpec| (!spec.payload.fixed).then_some(spec.payload.default);
    let name = |scheme: Scheme| match &scheme.spec().authentication {
        Some(mode) => format!("{scheme} ({} with a key)", mode.payload.default),
        None => scheme.to_string(),
    };
    let groups = grouped(default).into_iter().map(|(size, schemes)| {
        format!("{size} for {}", joined(schemes.into_iter().map(name), "and"))
    });
    format!(
        "Payload size in bytes [default: {}; fixed for the others]",
        groups.collect::<Vec<_>>().join(", ")
    )
}

/// Help of `ping --pause`.
pub(crate) fn pause_help() -> String {
    format!("Closed loop: pause after each reply [default: {}]", defaults(|all| all.pause))
}

/// Help of `ping --warm-up`.
pub(crate) fn warm_up_help() -> String {
    format!(
        "Number of warm-up probes, which are not counted. The last three are sent at the \
         measurement rate [default: {}]",
        defaults(|all| all.warm_up)
    )
}

/// Help of the URLs of `reflect`.
pub(crate) fn reflect_urls_help() -> String {
    let urls = Scheme::with(ProtocolSpec::has_reflector).map(|scheme| format!("{scheme}://"));
    let driver_only = |spec: &ProtocolSpec| spec.driver_reply.is_some() && !spec.has_reflector();
    let others = Scheme::with(driver_only).map(|scheme| format!("{scheme}://ADDRESS"));
    format!(
        "Protocols and addresses: {}ADDRESS:PORT; with --engine xdp or auto also {} [default: STAMP \
         on port 862 of all IPv6 and IPv4 addresses]",
        joined(urls, "or"),
        joined(others, "or")
    )
}

/// The default of most protocols, then the others, like `8; text+udp and text+tcp: 1`.
fn defaults<T: Display + Ord>(value: impl Fn(&ProbeDefaults) -> T) -> String {
    let usual = value(&Scheme::Stamp.spec().defaults);
    let other = |spec: &ProtocolSpec| Some(value(&spec.defaults)).filter(|value| *value != usual);
    let others = grouped(other).into_iter().map(|(value, schemes)| {
        let names = schemes.into_iter().map(|scheme| scheme.to_string());
        format!("; {}: {value}", joined(names, "and"))
    });
    format!("{usual}{}", others.collect::<String>())
}

/// The protocols by a value, without those that have none.
fn grouped<T: Ord>(value: impl Fn(&ProtocolSpec) -> Option<T>) -> BTreeMap<T, Vec<Scheme>> {
    let mut groups: BTreeMap<T, Vec<Scheme>> = BTreeMap::new();
    for scheme in Scheme::ALL {
        if let Some(value) = value(scheme.spec()) {
            groups.entry(value).or_default().push(*scheme);
        }
    }
    groups
}

/// Joins the words of a list, like `a, b and c`.
fn joined(words: impl Iterator<Item = String>, conjunction: &str) -> String {
    let words: Vec<_> = words.collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {conjunction} {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_each_protocol_with_its_defaults() {
        let sizes = "56 for icmp, 64 for udp and tcp, 76 for stamp (164 with a key)";
        assert!(size_help().contains(sizes), "{}", size_help());
        assert!(warm_up_help().ends_with("[default: 8; text+udp and text+tcp: 1]"));
        assert!(pause_help().ends_with("[default: 0s; text+udp and text+tcp: 1s]"));
        assert!(interval_help().contains("for text+udp and text+tcp see --pause"));
        for scheme in Scheme::ALL {
            assert!(target_help().contains(&format!("{scheme}://HOST")), "{scheme}");
        }
        assert!(reflect_urls_help().contains("xdp or auto also icmp://ADDRESS ["));
    }
}
