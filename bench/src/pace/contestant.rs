//! Senders in the comparison, and how each is asked for the same gap.

use super::grid::Cell;

/// A program that sends packets at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contestant {
    /// Unique; heading in tables and key in the JSON object.
    pub(super) name: &'static str,
    pub(super) program: Program,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Dwell {
        engine: &'static str,
        stamps: &'static str,
    },
    /// One send call per packet, and nothing else.
    C {
        role: &'static str,
    },
    Iperf3,
    Iperf2,
    Ditg,
    Mgen,
    Trafgen,
}

const fn contestant(name: &'static str, program: Program) -> Contestant {
    Contestant { name, program }
}

const fn dwell(engine: &'static str, stamps: &'static str) -> Program {
    Program::Dwell { engine, stamps }
}

/// dwell with default options; the goals judge this one.
pub(super) const JUDGED: &str = "dwell auto";
/// Lower bound.
pub(super) const LOWER_BOUND: &str = "C spin";
/// The lower bound a second time: any difference between the two is chance.
pub(super) const LOWER_BOUND_AGAIN: &str = "C spin again";
/// The lower bound with sleep.
pub(super) const LOWER_BOUND_SLEEP: &str = "C sleep-spin";

/// All senders.
pub(super) const CONTESTANTS: [Contestant; 12] = [
    contestant(JUDGED, dwell("auto", "auto")),
    // Shows the cost of kernel timestamps.
    contestant("dwell user stamps", dwell("auto", "user")),
    contestant("dwell sleep-spin", dwell("sleep-spin", "auto")),
    contestant("dwell spin", dwell("spin", "auto")),
    contestant(LOWER_BOUND, Program::C { role: "spin" }),
    contestant(LOWER_BOUND_SLEEP, Program::C { role: "sleep" }),
    contestant("iperf3", Program::Iperf3),
    contestant("iperf2", Program::Iperf2),
    // As far from the lower bound, in order, as the judged sender.
    contestant(LOWER_BOUND_AGAIN, Program::C { role: "spin" }),
    contestant("D-ITG", Program::Ditg),
    contestant("mgen", Program::Mgen),
    contestant("trafgen", Program::Trafgen),
];

/// Unmeasured sender of the warm-up.
pub(super) const WARM_UP: Contestant = contestant(LOWER_BOUND, Program::C { role: "spin" });

/// Streams per turn of contestants whose comparison needs high resolution; the figure of one stream
/// is chance.
const STREAMS_PER_TURN: usize = 3;

impl Contestant {
    /// Returns the number of streams per turn.
    pub(super) fn streams(&self) -> usize {
        if self.is_narrow() { STREAMS_PER_TURN } else { 1 }
    }

    /// Whether its goals have tight limits.
    pub(super) fn is_narrow(&self) -> bool {
        [JUDGED, LOWER_BOUND, LOWER_BOUND_AGAIN, LOWER_BOUND_SLEEP].contains(&self.name)
    }

    /// Whether it is a third-party program.
    pub(super) const fn is_peer(&self) -> bool {
        !matches!(self.program, Program::Dwell { .. } | Program::C { .. })
    }

    /// Returns the programs that must be installed for it.
    pub(super) const fn needs(&self) -> &'static [&'static str] {
        match self.program {
            Program::Dwell { .. } | Program::C { .. } => &[],
            Program::Iperf3 => &["iperf3"],
            Program::Iperf2 => &["iperf"],
            Program::Ditg => &["ITGSend", "ITGRecv"],
            Program::Mgen => &["mgen"],
            Program::Trafgen => &["trafgen"],
        }
    }
}

/// Both ends of a stream.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) from: String,
    pub(super) to: String,
    /// Ethernet addresses of the link.
    pub(super) from_mac: String,
    pub(super) to_mac: String,
    /// Name of the sender's interface.
    pub(super) interface: String,
}

/// Destination port of all senders; nothing listens there (witness.rs).
pub(super) const PORT: u16 = 5_001;
/// Destination port of D-ITG, whose receiver opens it.
const DITG_PORT: u16 = 9_001;

/// Returns the program and its arguments for sending `cell`; only dwell can send it several times.
///
/// - dwell gets size and rate as in the cell; its warm-up train comes first.
/// - The C programs get the gap.
/// - iperf3 and iperf2 count UDP payload. iperf3 checks its clock once per millisecond by default,
///   so its pacing timer is set to 1 us, the minimum. iperf2 gets a duration, because with `-n` or
///   `-k` it does not pace at 50 Mbit/s or more, and does not wait for the receiver's report.
/// - D-ITG and mgen count packets per second. Both poll the clock (`-poll`, `precise on`), because
///   they are much less accurate otherwise.
/// - trafgen gets the gap. With `--rate` it does not pace but sends everything at once. It sends
///   through the queueing discipline, like all others.
pub(super) fn words(
    program: Program,
    cell: Cell,
    streams: usize,
    ends: &Ends,
) -> (&'static str, Vec<String>) {
    let (payload, count) = (cell.payload().to_string(), cell.count().to_string());
    let (to, per_second) = (ends.to.clone(), cell.packets_per_second());
    let bits = cell.payload_bits_per_second().to_string();
    let port = PORT.to_string();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match program {
        Program::Dwell { engine, stamps } => {
            let url = format!("udp://{to}:{PORT}");
            let rate = format!("{}Mbit/s", cell.mbits);
            let (flag, size) = match cell.of_frames {
                true => ("--frame-size", format!("{}B", cell.frame())),
                false => ("--size", format!("{}B", cell.ip_size)),
            };
            let train = ["pace", &url, flag, &size, "--rate", &rate, "--count", &count];
            let mut said = words(&train);
            said.extend(words(&["--repeat", &streams.to_string(), "--engine", engine]));
            said.extend(words(&["--stamps", stamps, "-q", "--json"]));
            ("dwell", said)
        }
        Program::C { role } => {
            let gap = cell.gap_ps().to_string();
            ("cpace", words(&[role, &to, &port, &payload, &gap, &count]))
        }
        Program::Iperf3 => {
            let mut said = words(&["-c", &to, "-u", "-l", &payload, "-b", &bits, "-k", &count]);
            said.extend(words(&["--pacing-timer", "1"]));
            ("iperf3", said)
        }
        Program::Iperf2 => {
            let seconds = format!("{:.6}", cell.duration_ps() as f64 / 1e12);
            let mut said = words(&["-c", &to, "-p", &port, "-u", "-l", &payload, "-b", &bits]);
            said.extend(words(&["-t", &seconds, "--no-udp-fin"]));
            ("iperf", said)
        }
        Program::Ditg => {
            let (port, rate) = (DITG_PORT.to_string(), per_second.to_string());
            let mut said = words(&["-a", &to, "-rp", &port, "-T", "UDP", "-c", &payload]);
            said.extend(words(&["-C", &rate, "-z", &count, "-poll"]));
            ("ITGSend", said)
        }
        Program::Mgen => {
            let pattern = format!("PERIODIC [{per_second} {payload}] COUNT {count}");
            let event = format!("0.0 ON 1 UDP DST {to}/{PORT} {pattern}");
            ("mgen", words(&["precise", "on", "event", &event]))
        }
        Program::Trafgen => {
            let gap = format!("{}ns", cell.gap_ps() / 1_000);
            let Ends { from, from_mac, to_mac, interface, .. } = ends;
            let packet = format!(
                "{{ eth(da={to_mac}, sa={from_mac}), ipv4(saddr={from}, daddr={to}, ttl=64), \
                 udp(sport={PORT}, dport={PORT}), fill(0, {payload}) }}"
            );
            let mut said = words(&["-o", interface, "-n", &count, "-P", "1", "-q"]);
            said.extend(words(&["-t", &gap, &packet]));
            ("trafgen", said)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Ends {
        let text = str::to_owned;
        Ends {
            from: text("198.19.0.1"),
            to: text("198.19.0.2"),
            from_mac: text("02:00:00:00:00:01"),
            to_mac: text("02:00:00:00:00:02"),
            interface: text("n2"),
        }
    }

    #[test]
    fn all_senders_are_asked_for_the_same_gap() {
        let cell = Cell { mbits: 50, ip_size: 1_500, of_frames: false };
        let said = |program| words(program, cell, 1, &ends()).1.join(" ");
        // 1472 of 1500 bytes are payload.
        assert!(said(Program::Iperf3).contains("-l 1472 -b 49066667 -k 84"));
        assert!(said(Program::Iperf2).contains("-l 1472 -b 49066667 -t 0.020160"));
        assert!(said(Program::Ditg).contains("-c 1472 -C 4166.666666666667 -z 84"));
        assert!(said(Program::Mgen).contains("PERIODIC [4166.666666666667 1472] COUNT 84"));
        assert!(said(Program::Trafgen).contains("-t 240000ns"));
        assert!(said(Program::C { role: "spin" }).ends_with("1472 240000000 84"));
        assert!(said(dwell("spin", "auto")).contains("--size 1500B --rate 50Mbit/s"));
    }

    #[test]
    fn fastest_stream_counts_frames() {
        let (_, said) = words(dwell("auto", "auto"), Cell::FASTEST, 3, &ends());
        let said = said.join(" ");
        assert!(said.contains("--frame-size 1514B --rate 1000Mbit/s"));
        assert!(said.contains("--repeat 3"));
    }
}
