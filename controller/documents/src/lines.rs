//! The place in dwell of every line of the founding documents: what they did, demand or claim, and what dwell
//! does about it. docs/founding-documents.md has the same table, and a test compares them.

use dwell_units::named;

named! {
    /// Status of a line.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Status {
        /// dwell does the same.
        Works = "works",
        /// dwell does it, and better.
        Improved = "improved",
        /// dwell reaches the same end by other means.
        Replaced = "replaced",
        /// dwell does not do it, for a reason.
        LeftOut = "left out",
        /// It cannot be done with the means at hand.
        Impossible = "impossible here",
    }
}

/// A line of a document.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Its id, such as `S0.3`.
    pub id: &'static str,
    /// What the document says, in a phrase.
    pub what: &'static str,
    /// Its status.
    pub status: Status,
    /// How, or why not, with the command, plan or page that shows it.
    pub how: &'static str,
}

const fn line(id: &'static str, what: &'static str, status: Status, how: &'static str) -> Line {
    Line { id, what, status, how }
}

use Status::{Improved, LeftOut, Replaced, Works};

/// All lines, in the order of the documents.
pub const LINES: &[Line] = &[
    line(
        "S0.1",
        "three nodes in a line on Pi Zero boards",
        Works,
        "`line:3` labs, virtual machines and devices; a board of this class was not at hand, case `slow-board` is nearer to it",
    ),
    line(
        "S0.2",
        "OLSR over ad hoc 802.11, a line forced by Netfilter rules",
        Replaced,
        "`wifi:N` (802.11 ad hoc, mac80211_hwsim) and `forced:N` labs, with babeld in place of olsrd",
    ),
    line(
        "S0.3",
        "delays of node and link, processing, queueing, stack",
        Improved,
        "measured between named points of a packet's path, each with its source (docs/anatomy.md)",
    ),
    line(
        "S0.4",
        "three relay modes: routing, translation, encryption",
        Works,
        "`dwell relay --mode route|translate|encrypt`, and an authenticated cipher besides",
    ),
    line(
        "S0.5",
        "socat and an own UDP proxy, timestamps after recv() and sendto()",
        Improved,
        "one relay for UDP and TCP with timestamps before and after each call; `processing_s0_ns` is the paper's difference",
    ),
    line(
        "S0.6",
        "timestamps at PRE_ROUTING and POST_ROUTING by printk",
        Replaced,
        "eBPF programs at the same hooks, without a kernel module",
    ),
    line(
        "S0.7",
        "iperf traffic with an id and a time in the first 12 bytes",
        Improved,
        "iperf2's format with a packet rate, and dwell's own flows; clear bytes are an option",
    ),
    line(
        "S0.8",
        "CPU load by a throttled process",
        Improved,
        "`dwell load cpu --level`; the load that was reached is measured, and trials that miss it are left out",
    ),
    line(
        "S0.9",
        "RSSI of the network and of five neighbouring channels",
        Works,
        "recorded with every trial on wireless interfaces; neighbouring channels on real radios only, because simulated ones have no survey",
    ),
    line(
        "S0.10",
        "grid of sizes, rates and loads, 50 samples per cell",
        Works,
        "plans/relay-delay.toml is the same grid",
    ),
    line("S0.11", "timelines with Hampel outliers", Works, "figure `timeline`"),
    line(
        "S0.12",
        "jitter and loss by size",
        Works,
        "figures by size of each metric (docs/report.md)",
    ),
    line(
        "S0.13",
        "node and processing delay by size, rate and load",
        Works,
        "figures by axis (docs/report.md)",
    ),
    line("S0.14", "ECDF of node delays", Improved, "figure `ecdf` of samples, not of percentiles"),
    line(
        "S0.15",
        "stacked end-to-end delay, NLR from iperf's throughput",
        Improved,
        "figure `end-to-end`; link delays are measured by timestamps, not derived from throughput",
    ),
    line(
        "S0.16",
        "linear model of the encrypted delay",
        Works,
        "fit with intervals of both coefficients and R2",
    ),
    line(
        "S0.17",
        "percentiles instead of means",
        Improved,
        "with intervals, and none where the samples do not support one",
    ),
    line("S0.18", "relaying in a program takes 10 times the kernel's delay", Works, "judged"),
    line("S0.19", "NLR below 5 % for routing, about 30 % for translation", Works, "judged"),
    line(
        "S0.20",
        "encryption exceeds the link delay above 1,200 B",
        Works,
        "judged, in both cases",
    ),
    line("S0.21", "routing and translation flat in rate and load", Works, "judged"),
    line("S0.22", "encryption linear in size", Works, "judged, in both cases"),
    line("S0.23", "crossing to user space takes over 100 us", Works, "judged"),
    line("S0.24", "jitter grows with size only for encryption", Works, "judged"),
    line("S0.25", "loss only for encryption at 200 packets/s and more", Works, "judged"),
    line(
        "S0.26",
        "higher rates have lower delays, unexplained",
        Improved,
        "judged, and explained by idle states (docs/idle-effect.md)",
    ),
    line(
        "S0.27",
        "conclusion: balance load by CPU and traffic",
        Improved,
        "`dwell fit` and `dwell predict` choose relays by delay, CPU and traffic (docs/predict.md); judged is whether a busy relay is slower",
    ),
    line(
        "S1.1",
        "distance from round-trip times",
        Improved,
        "`dwell range`, with an interval, and 802.11 FTM where the card has it",
    ),
    line(
        "S1.2",
        "dumb mode: the driver answers in its interrupt handler",
        Replaced,
        "an XDP program answers in the driver, and all other traffic goes on",
    ),
    line(
        "S1.3",
        "originator mode: the driver timestamps, printk",
        Replaced,
        "timestamps of the driver with `--stamps driver`, in the result",
    ),
    line(
        "S1.4",
        "modes as bits of a debug sysctl, the same bit for both",
        Replaced,
        "options of the commands",
    ),
    line(
        "S1.5",
        "timestamps in a circular array",
        Replaced,
        "probes are matched by id and sequence number",
    ),
    line(
        "S1.6",
        "retry and flush of the array after losses",
        Replaced,
        "not needed: no probe is matched by its order",
    ),
    line("S1.7", "pairs of set-ups, 1,000 pings each, histograms", Works, "plans/stable-ping.toml"),
    line("S1.8", "mean and variance fall, most for a slow host", Works, "judged"),
    line(
        "S2.1",
        "web pages: devices, run a test, see plots, compare",
        Works,
        "`dwell serve` (docs/web.md)",
    ),
    line(
        "S2.2",
        "device, experiment and data manager over SSH",
        Improved,
        "`dwell device`, through the user's own OpenSSH; no password is stored",
    ),
    line(
        "S2.3",
        "OMware: packets sent by a kernel module",
        Replaced,
        "nine engines without a kernel module, from sleep to AF_XDP (docs/pace.md)",
    ),
    line("S2.4", "packet pairs, minimum gap", Works, "`dwell pace --pattern pair`, `min_gap_ns`"),
    line(
        "S2.5",
        "packet trains by size, rate and cross traffic",
        Works,
        "plans/send-accuracy.toml is the same grid",
    ),
    line(
        "S2.6",
        "minimum gap, rate, variability j",
        Improved,
        "j as printed (equal to the mean gap) beside three that measure variability",
    ),
    line(
        "S2.7",
        "measured against expected rates, device cards",
        Works,
        "figures of the report, `dwell device show`",
    ),
    line(
        "S2.8",
        "verdict: networks that a device can measure",
        Improved,
        "with a stated tolerance and confidence; judged beside the published boards",
    ),
    line(
        "S2.9",
        "future work: compare with a capture card",
        Works,
        "`dwell import capture.pcap --witness RUN`",
    ),
    line(
        "S3.1",
        "latency at one laptop, so a round trip; mean",
        Improved,
        "round trips of every exchange, with percentiles and their intervals",
    ),
    line(
        "S3.2",
        "two Arduino Uno with Ethernet, a Raspberry Pi, serial monitors",
        Replaced,
        "`dwell node-sim --like chung-2021-best`, firmware for Cortex-M3 in QEMU and for Arduino Uno",
    ),
    line(
        "S3.3",
        "request and acknowledge over TCP and UDP, every 5 s",
        Works,
        "`text+tcp://` and `text+udp://`",
    ),
    line(
        "S3.4",
        "best, worst and average case, client lag and server lag",
        Improved,
        "1 to 64 clients at once; both lags are measured; the average case is a stated mix",
    ),
    line(
        "S3.5",
        "tables 1 to 4, TCP 2.5 times slower",
        Works,
        "the tables are data, `dwell audit` finds their slips, the ratio is judged",
    ),
    line(
        "S4.1",
        "UDP echo with a 24-byte message",
        Improved,
        "`roundtrip://`; a late reply does not desynchronise it",
    ),
    line(
        "S4.2",
        "CSV of round-trip times",
        Works,
        "`dwell ping roundtrip://... --csv` writes it, `dwell import` reads it",
    ),
    line(
        "S4.3",
        "minimum, mean, maximum, histogram of four set-ups",
        Works,
        "plans/round-trip.toml",
    ),
    line(
        "S4.4",
        "table of round trips by load",
        Improved,
        "judged; the printed means are of distinct values, the true ones are beside them",
    ),
    line(
        "S4.5",
        "multicast time slots with GPIO events",
        LeftOut,
        "it is in the repository, but no part of the report",
    ),
];

/// Lines that start with a prefix such as `S0`.
pub fn lines_of(prefix: &str) -> impl Iterator<Item = &'static Line> {
    LINES.iter().filter(move |line| line.id.split_once('.').is_some_and(|(of, _)| of == prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_document_is_there_once() {
        for (document, lines) in [("S0", 27), ("S1", 8), ("S2", 9), ("S3", 5), ("S4", 5)] {
            let found: Vec<&str> = lines_of(document).map(|line| line.id).collect();
            let wanted: Vec<String> = (1..=lines).map(|n| format!("{document}.{n}")).collect();
            assert_eq!(found, wanted);
        }
    }
}
