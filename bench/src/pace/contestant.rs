//! Who sends on time, and how each is asked for the same gap.

use super::grid::Cell;

/// A way to send packets at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contestant {
    /// Unique; heads the columns of tables and keys the JSON object.
    pub(super) name: &'static str,
    pub(super) program: Program,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Dwell {
        engine: &'static str,
        stamps: &'static str,
    },
    /// One send call for each packet, and nothing else.
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

/// What dwell does when nobody says how; this one is judged.
pub(super) const JUDGED: &str = "dwell auto";
/// What nobody can be much better than.
pub(super) const FLOOR: &str = "C spin";
/// The floor once more: what is said of it beside the floor is chance.
pub(super) const TWIN: &str = "C spin again";
/// The same with sleep in between.
pub(super) const SLEEPER: &str = "C sleep-spin";

/// Everybody.
pub(super) const CONTESTANTS: [Contestant; 12] = [
    contestant(JUDGED, dwell("auto", "auto")),
    // What stamping by the kernel costs.
    contestant("dwell user stamps", dwell("auto", "user")),
    contestant("dwell sleep-spin", dwell("sleep-spin", "auto")),
    contestant("dwell spin", dwell("spin", "auto")),
    contestant(FLOOR, Program::C { role: "spin" }),
    contestant(SLEEPER, Program::C { role: "sleep" }),
    contestant("iperf3", Program::Iperf3),
    contestant("iperf2", Program::Iperf2),
    // As far from the floor as the judged one is.
    contestant(TWIN, Program::C { role: "spin" }),
    contestant("D-ITG", Program::Ditg),
    contestant("mgen", Program::Mgen),
    contestant("trafgen", Program::Trafgen),
];

/// Whom nobody looks at.
pub(super) const WARM_UP: Contestant = contestant(FLOOR, Program::C { role: "spin" });

/// Streams that each of those sends in a turn whose figures decide to a fifth or less: of one, it is chance.
const STREAMS: usize = 3;

impl Contestant {
    /// How many streams it sends in a turn.
    pub(super) fn streams(&self) -> usize {
        if self.is_narrow() { STREAMS } else { 1 }
    }

    /// What is judged of it is compared narrowly.
    pub(super) fn is_narrow(&self) -> bool {
        [JUDGED, FLOOR, TWIN, SLEEPER].contains(&self.name)
    }

    /// A program of somebody else's that people send with.
    pub(super) const fn is_peer(&self) -> bool {
        !matches!(self.program, Program::Dwell { .. } | Program::C { .. })
    }

    /// What has to be installed for it besides what the bench builds.
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

/// Where a stream starts and ends.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) from: String,
    pub(super) to: String,
    /// Of the link's Ethernet interfaces.
    pub(super) from_mac: String,
    pub(super) to_mac: String,
    /// Name of the interface at the sender.
    pub(super) interface: String,
}

/// Whither everybody sends; nobody is there (witness.rs).
pub(super) const PORT: u16 = 5_001;
/// The same for D-ITG, whose receiver opens it.
const DITG: u16 = 9_001;

/// The program and what is to be said to it, so that it sends `cell`; only dwell can send it several
/// times.
///
/// - dwell is told the size and the rate as the cell names them; its train of warm-up comes first.
/// - The C programs are told the gap.
/// - iperf3 and iperf2 count UDP payload. iperf3 looks at its clock every millisecond unless told
///   otherwise, so it is told 1 us, as near to a gap as it can be asked for. iperf2 is told
///   a duration, because with `-n` or `-k` it does not pace from 50 Mbit/s on; it shall not wait for the
///   receiver's report.
/// - D-ITG and mgen count packets per second. Both are asked to poll the clock (`-poll`,
///   `precise on`), because they are much worse without.
/// - trafgen is told the gap. It cannot pace by `--rate`: it sends everything at once. It sends
///   through the queueing discipline, as all do.
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
            let (port, rate) = (DITG.to_string(), per_second.to_string());
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
    fn everybody_is_asked_for_the_same_gap_in_their_own_words() {
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
    fn the_fastest_stream_is_asked_for_by_the_size_of_its_frames() {
        let (_, said) = words(dwell("auto", "auto"), Cell::FASTEST, 3, &ends());
        let said = said.join(" ");
        assert!(said.contains("--frame-size 1514B --rate 1000Mbit/s"));
        assert!(said.contains("--repeat 3"));
    }
}
