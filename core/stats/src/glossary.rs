//! Glossary of the names in results: meaning and source of each. `dwell help terms` prints it;
//! tests compare it with the names in the code and in actual results.

/// A name in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The name. Capitals mark a variable part, like `POINT` in `missing_POINT`.
    pub name: &'static str,
    /// Meaning in one line.
    pub meaning: &'static str,
    /// Standard, paper or documentation page that defines it.
    pub source: &'static str,
}

/// Kind of a name in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermKind {
    /// A distribution, under `metrics`.
    Metric,
    /// A number, under `values`.
    Value,
}

/// All terms of a kind, in print order.
pub const fn terms(kind: TermKind) -> &'static [Term] {
    match kind {
        TermKind::Metric => METRICS,
        TermKind::Value => VALUES,
    }
}

/// Finds the term of a name in results, including names with variable parts.
pub fn term(kind: TermKind, name: &str) -> Option<&'static Term> {
    let all = terms(kind);
    all.iter().find(|term| term.name == name).or_else(|| all.iter().find(|term| term.covers(name)))
}

impl Term {
    /// Returns whether `name` matches, with any text in place of the parts in capitals.
    fn covers(&self, name: &str) -> bool {
        let mut rest = name;
        let mut fixed =
            self.name.split(|c: char| c.is_ascii_uppercase()).filter(|part| !part.is_empty());
        let varies_first = self.name.starts_with(|c: char| c.is_ascii_uppercase());
        if !varies_first {
            let Some(after) = fixed.next().and_then(|first| rest.strip_prefix(first)) else {
                return false;
            };
            rest = after;
        }
        for part in fixed {
            // A variable part has at least one character.
            let Some(at) = rest.char_indices().skip(1).find_map(|(at, _)| {
                rest.get(at..).filter(|tail| tail.starts_with(part)).map(|_| at)
            }) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        let varies_last = self.name.ends_with(|c: char| c.is_ascii_uppercase());
        if varies_last { !rest.is_empty() } else { rest.is_empty() }
    }
}

const fn of(name: &'static str, meaning: &'static str, source: &'static str) -> Term {
    Term { name, meaning, source }
}

const METRICS: &[Term] = &[
    // Round trips.
    of("rtt_ns", "round-trip delay as the program saw it: rx_app - tx_app", "RFC 2681"),
    of(
        "rtt_kernel_ns",
        "round-trip delay between kernel timestamps: rx_kernel - tx_kernel",
        "RFC 2681",
    ),
    of(
        "rtt_hw_ns",
        "round-trip delay between network card timestamps: rx_hw - tx_hw",
        "RFC 2681, wire time",
    ),
    of(
        "tcp_smoothed_rtt_ns",
        "smoothed round-trip time of a TCP connection, once per interval of iperf3",
        "RFC 6298, docs/import.md",
    ),
    of(
        "rtt_intended_ns",
        "round-trip delay from the intended send time, so that a stall of the sender is not hidden",
        "docs/results.md",
    ),
    of(
        "rtt_minus_residence_ns",
        "round-trip delay without the residence in the reflector",
        "RFC 8762 section 4",
    ),
    of("residence_ns", "time in the reflector: T3 - T2", "RFC 8762"),
    of(
        "one_way_forward_ns",
        "one-way delay to the far end, where both ends share a clock",
        "RFC 7679",
    ),
    of(
        "one_way_backward_ns",
        "one-way delay from the far end, where both ends share a clock",
        "RFC 7679",
    ),
    of(
        "ipdv_ns",
        "difference of the round-trip delays of successive probes, as a magnitude",
        "RFC 3393",
    ),
    of(
        "ipdv_forward_ns",
        "the same on the way to the far end; a constant clock offset cancels",
        "RFC 3393",
    ),
    of("ipdv_backward_ns", "the same on the way back", "RFC 3393"),
    of("pdv_ns", "round-trip delay above the smallest one", "RFC 5481 section 4.2"),
    of(
        "queueing_in_ns",
        "time in the socket buffer and until the program wakes up: rx_app - rx_kernel",
        "Miya 2020",
    ),
    of("schedule_error_ns", "actual minus intended send time", "docs/results.md"),
    // Departures.
    of("gap_ns", "inter-departure time: difference of successive send timestamps", "Mok 2015"),
    of("gap_error_ns", "|gap - scheduled gap|", "docs/pace.md"),
    of("first_schedule_error_ns", "schedule error of the first packets of trains", "docs/pace.md"),
    // Nodes and links.
    of(
        "node_delay_ns",
        "node delay between the kernel's timestamps: rx_kernel to tx_kernel",
        "Miya 2020",
    ),
    of(
        "node_delay_netfilter_ns",
        "node delay between netfilter's hooks: pre_routing to post_routing",
        "docs/trace.md",
    ),
    of(
        "node_delay_driver_ns",
        "node delay between the drivers: rx_driver to tx_tcx",
        "docs/trace.md",
    ),
    of("processing_ns", "time in the relaying program: rx_app to tx_app", "Miya 2020"),
    of(
        "processing_s0_ns",
        "processing with the send call: rx_app to tx_app_done; part of no sum",
        "Miya 2020",
    ),
    of(
        "queueing_out_ns",
        "from the send call to the queueing discipline: tx_app to tx_sched",
        "Miya 2020",
    ),
    of("qdisc_ns", "in the queueing discipline: tx_sched to tx_kernel", "docs/relay.md"),
    of("end_to_end_ns", "end-to-end delay: node delays and link delays together", "Miya 2020"),
    of("sender_out_ns", "in the sender, from its program to its driver", "docs/relay.md"),
    of("link_in_ns", "link delay to the relaying node", "Miya 2020"),
    of("link_out_ns", "link delay from the relaying node", "Miya 2020"),
    of(
        "link_delay_ns",
        "delay of all links: from each sender's driver to the next receiver's kernel",
        "Miya 2020",
    ),
    of("receiver_in_ns", "in the receiver, from its kernel to its program", "docs/relay.md"),
    of(
        "path_DIRECTION_N_node_ID_PART_ns",
        "a part of the delay in the N-th relay of the path, reported in the packet",
        "docs/relay.md",
    ),
    // TCP.
    of("tcp_rtt_ns", "smoothed round-trip time of TCP connections, every 100 ms", "RFC 6298"),
    // Captures.
    of("witness_rtt_ns", "round-trip delay in a capture of the same packets", "docs/import.md"),
    of("witness_gap_ns", "gap in a capture of the same packets", "docs/import.md"),
    of(
        "rtt_minus_witness_ns",
        "the program's round-trip delay minus the capture's",
        "docs/import.md",
    ),
    of("left_to_witness_ns", "from the departure to the capture's timestamp", "docs/import.md"),
];

const VALUES: &[Term] = &[
    // Loss and jitter.
    of("loss_ratio", "lost probes / sent probes", "RFC 7680"),
    of(
        "late_ratio",
        "probes whose reply came after the time-out / sent probes",
        "RFC 7680 section 2.6",
    ),
    of(
        "loss_forward_ratio",
        "probes lost on the way to the far end / sent probes",
        "RFC 8972 section 3",
    ),
    of("loss_backward_ratio", "replies lost on the way back / sent probes", "RFC 8972 section 3"),
    of(
        "jitter_rfc3550_ns",
        "running average of the variation of transit times",
        "RFC 3550 section 6.4.1",
    ),
    of("METRIC_pQ_low_ns", "lower end of the 95 % interval of a percentile", "docs/statistics.md"),
    of("METRIC_pQ_high_ns", "upper end of the 95 % interval of a percentile", "docs/statistics.md"),
    of(
        "event_bytes",
        "bytes that a node sent to its controller during the trial",
        "docs/formats.md",
    ),
    of("stray_bytes", "bytes of a TCP stream that belong to no reply", "docs/statistics.md"),
    of("far_stamps_void", "replies whose T2 and T3 cannot be true", "docs/statistics.md"),
    of(
        "far_socket_drops",
        "packets that the reflector's socket dropped during the measurement",
        "socket(7)",
    ),
    of("path_replies", "replies that carry telemetry of relays", "docs/relay.md"),
    of("path_empty", "replies whose telemetry slots are empty", "docs/relay.md"),
    of("path_cut", "replies whose telemetry is incomplete", "docs/relay.md"),
    // Rates and amounts.
    of("rate_bps", "rate in bits of IP packets", "docs/traffic.md"),
    of("rate_pps", "rate in packets", "docs/traffic.md"),
    of("payload_rate_bps", "rate in bits of payload (goodput)", "Miya 2020, equation 1"),
    of("throughput_bps", "effective throughput of a flow at its receiver", "Miya 2020"),
    of("packets", "packets sent, or received by a sink", "docs/traffic.md"),
    of("payload_bytes", "bytes of payload; over TCP, those acknowledged", "docs/traffic.md"),
    of("bytes", "bytes received, as the imported log states", "docs/import.md"),
    of("duration_ns", "time from the first packet to the last", "docs/traffic.md"),
    of("flows", "flows or connections", "docs/traffic.md"),
    of("send_failed", "packets that the kernel refused to send", "docs/traffic.md"),
    of(
        "datagrams_sent",
        "datagrams that the client sent, as the imported log states",
        "docs/import.md",
    ),
    of("passages", "packets of an imported segment", "docs/import.md"),
    of("dropped", "packets that an imported segment lacks", "docs/import.md"),
    // TCP.
    of("unacknowledged_bytes", "bytes written and not acknowledged at the end", "tcp(7), TCP_INFO"),
    of("retransmissions", "TCP segments sent again", "RFC 9293 section 3.8"),
    of("min_rtt_ns", "smallest round-trip time of the TCP connections", "tcp(7), TCP_INFO"),
    of("delivery_rate_bps", "latest rate at which TCP delivered bytes", "tcp(7), TCP_INFO"),
    of("flows_failed", "TCP connections that ended before the load did", "docs/traffic.md"),
    of("tcp_connections", "TCP connections that a sink accepted", "docs/traffic.md"),
    of("tcp_payload_bytes", "bytes that a sink received over TCP", "docs/traffic.md"),
    of(
        "tcp_payload_rate_bps",
        "the same per second, from the first connection to the last byte",
        "docs/traffic.md",
    ),
    of("tcp_duration_ns", "time from the first TCP connection to the last byte", "docs/traffic.md"),
    of(
        "tcp_refused",
        "TCP connections closed because the connection limit was reached",
        "docs/traffic.md",
    ),
    of("tcp_resets", "TCP connections that ended with an error", "docs/traffic.md"),
    // Sinks.
    of("lost", "numbers below the highest that did not arrive", "docs/traffic.md"),
    of("duplicate", "packets that arrived again", "RFC 5560"),
    of("reordered", "packets that arrived after one of a higher number", "RFC 4737"),
    of("unmarked", "packets without a number", "docs/traffic.md"),
    of("overflowed", "packets dropped because the receive buffer was full", "socket(7)"),
    of("iperf_reports", "reports sent to iperf clients", "docs/traffic.md"),
    of("server_packets", "packets that the iperf server counted", "docs/traffic.md"),
    of("server_payload_bytes", "bytes that the iperf server counted", "docs/traffic.md"),
    of("server_lost", "packets that the iperf server counted as lost", "docs/traffic.md"),
    of("server_reordered", "packets that the iperf server counted as reordered", "docs/traffic.md"),
    of("server_jitter_ns", "jitter that the iperf server reports", "RFC 3550 section 6.4.1"),
    of("server_duration_ns", "duration that the iperf server reports", "docs/traffic.md"),
    // CPU load.
    of("asked_ratio", "share of a CPU that was asked for", "docs/plans.md"),
    of("burnt_ratio", "share of a CPU that was used", "docs/plans.md"),
    of("quota_NODE_asked_ratio", "CPU share that a node was limited to", "docs/plans.md"),
    of("quota_NODE_burnt_ratio", "CPU share that a limited node used", "docs/plans.md"),
    of(
        "quota_NODE_throttled_ns",
        "time for which a node was stopped by its limit",
        "docs/plans.md",
    ),
    // Departures.
    of("min_gap_ns", "smallest gap of pairs", "Mok 2015"),
    of("capacity_bps", "capacity that the smallest gap of pairs would measure", "Mok 2015"),
    of("capacity_median_bps", "capacity that the median gap of pairs would measure", "Mok 2015"),
    of(
        "j_literal_ns",
        "mean of |t_i - t_(i-1)|, which is the mean gap",
        "Mok 2015, equation 2 as printed",
    ),
    of("j_nominal_ns", "mean of |gap - nominal gap|", "docs/pace.md"),
    of("j_mean_ns", "mean of |gap - mean gap|", "docs/pace.md"),
    of("j_successive_ns", "mean of |gap - previous gap|", "docs/pace.md"),
    of("trains", "trains that were sent and stamped", "docs/pace.md"),
    of("holed_trains", "trains with a hole longer than a gap", "docs/pace.md"),
    of("discarded_trains", "trains during which a clock was stepped", "docs/pace.md"),
    of("merged_gaps", "gaps of 0: both packets have one timestamp", "docs/pace.md"),
    of("bursts", "groups of packets that left back to back", "docs/pace.md"),
    of("longest_burst_packets", "packets in the longest burst", "docs/pace.md"),
    of("missed_deadlines", "packets that left later than their deadline", "docs/pace.md"),
    of("unstamped_packets", "packets without a departure timestamp", "docs/pace.md"),
    of("merged_pairs", "pairs with one timestamp for both packets", "docs/pace.md"),
    of("reordered_pairs", "pairs that left in reverse order", "docs/pace.md"),
    of("unstamped_pairs", "pairs without a departure timestamp", "docs/pace.md"),
    of("discarded_pairs", "pairs during which a clock was stepped", "docs/pace.md"),
    of("icmp_errors", "ICMP errors received", "RFC 792, RFC 4443"),
    of("lead_packets", "packets that lead trains, seen by a sink", "docs/pace.md"),
    of("unasked_packets", "packets of a sender that asked for no timestamps", "docs/pace.md"),
    of("unread_packets", "packets that a sink dropped before reading", "docs/pace.md"),
    of("overflowed_packets", "packets dropped because a sink's buffer was full", "socket(7)"),
    of("clock_steps", "steps of the sink's clock", "docs/pace.md"),
    // Reflectors.
    of("requests", "probes that a reflector received", "RFC 8762"),
    of("replies", "replies that a reflector sent", "RFC 8762"),
    of("malformed", "packets that are not probes", "RFC 8762"),
    of("unauthentic", "packets with a wrong HMAC or authentication tag", "RFC 8762 section 4.4"),
    of("replayed", "authenticated packets that had arrived before", "docs/relay.md"),
    of("silenced", "packets of sources that repeat one packet too often", "docs/threat-model.md"),
    of("socket_drops", "packets dropped because a reflector's socket buffer was full", "socket(7)"),
    of("limited", "probes beyond the rate limit of their source", "docs/threat-model.md"),
    of("looping", "packets that would start a loop between reflectors", "docs/threat-model.md"),
    of("not_accepted", "TCP connections that could not be accepted", "accept(2)"),
    // Relays and traces.
    of("received_DIRECTION", "packets that a relay received, in one direction", "docs/relay.md"),
    of("relayed_DIRECTION", "packets that a relay forwarded, in one direction", "docs/relay.md"),
    of(
        "payload_bytes_DIRECTION",
        "bytes of payload that a relay forwarded, in one direction",
        "docs/relay.md",
    ),
    of("short", "packets with nothing beyond their clear bytes", "docs/relay.md"),
    of("too_old", "authenticated packets older than the replay window", "docs/relay.md"),
    of(
        "too_many_salts",
        "authenticated packets of more salts than are remembered",
        "docs/relay.md",
    ),
    of("truncated", "streams that ended without an authenticated end", "docs/relay.md"),
    of("tag_bytes", "bytes of the authentication tag in a packet", "docs/relay.md"),
    of("unsealed", "packets that were not encrypted, and were dropped", "docs/relay.md"),
    of("too_long", "packets too long for the path, and dropped", "docs/relay.md"),
    of("telemetry_filled", "packets in which a relay filled a telemetry slot", "docs/relay.md"),
    of("flows_evicted", "flows evicted to make room for new ones", "docs/relay.md"),
    of("flows_expired", "flows removed after their idle time-out", "docs/relay.md"),
    of("flows_not_opened", "clients that could not be served", "docs/relay.md"),
    of("flows_refused", "clients whose far end was unreachable", "docs/relay.md"),
    of("flows_no_seat", "clients refused because the flow limit was reached", "docs/relay.md"),
    of("nonce_bytes", "bytes that encryption adds to a packet", "docs/relay.md"),
    of("missing_POINT", "packets without the timestamp of this point", "docs/anatomy.md"),
    of("unjoined_END", "packets of one end that the others did not see", "docs/trace.md"),
    of("events", "events that the kernel's hooks delivered", "docs/trace.md"),
    of("events_dropped", "events for which the ring was full", "docs/trace.md"),
    of("events_of_more_flows", "events of flows beyond the limit", "docs/trace.md"),
    of("unjoined", "packets whose timestamps are incomplete", "docs/trace.md"),
    of("evicted", "packets evicted before all timestamps arrived", "docs/trace.md"),
    of("repeated", "timestamps of a point that a packet had already", "docs/trace.md"),
    of("without_id", "packets whose id is unknown", "docs/trace.md"),
    // Plans.
    of("nlr", "node delay / link delay", "Miya 2020"),
    of("nlr_s0", "the same with the link delay computed from the throughput", "Miya 2020"),
    of("link_delay_s0_ns", "link delay computed from size and throughput", "Miya 2020"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::departures::Variability;
    use crate::{DelayComponent, Leg, Metric};

    #[test]
    fn every_name_of_the_code_has_a_term() {
        let metrics = Metric::ALL.map(Metric::name).into_iter();
        let metrics = metrics
            .chain(DelayComponent::ALL.map(DelayComponent::name))
            .chain(Leg::ALL.map(Leg::name));
        for name in metrics {
            assert!(METRICS.iter().any(|term| term.name == name), "{name}");
        }
        for (name, _) in Variability::EXPLAINED {
            assert!(VALUES.iter().any(|term| term.name == name), "{name}");
        }
    }

    #[test]
    fn terms_are_complete_and_unique() {
        for kind in [TermKind::Metric, TermKind::Value] {
            let mut names: Vec<_> = terms(kind).iter().map(|term| term.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count);
            for term in terms(kind) {
                assert!(!term.meaning.is_empty() && !term.meaning.contains('\n'), "{term:?}");
                assert!(!term.source.is_empty(), "{term:?}");
                assert!(kind == TermKind::Value || term.name.ends_with("_ns"), "{term:?}");
            }
        }
    }

    #[test]
    fn name_with_a_varying_part_is_found() {
        let name = |kind, name: &str| term(kind, name).map(|term| term.name);
        assert_eq!(name(TermKind::Value, "missing_tx_kernel"), Some("missing_POINT"));
        assert_eq!(name(TermKind::Value, "missing_"), None);
        assert_eq!(name(TermKind::Value, "quota_n2_burnt_ratio"), Some("quota_NODE_burnt_ratio"));
        assert_eq!(name(TermKind::Value, "burnt_ratio"), Some("burnt_ratio"));
        assert_eq!(name(TermKind::Value, "rtt_p99_low_ns"), Some("METRIC_pQ_low_ns"));
        assert_eq!(
            name(TermKind::Metric, "path_forward_1_node_7_queueing_in_ns"),
            Some("path_DIRECTION_N_node_ID_PART_ns")
        );
        assert_eq!(name(TermKind::Metric, "rtt_us"), None);
    }
}
