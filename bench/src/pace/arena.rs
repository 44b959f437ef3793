//! Lab for measuring senders: two nodes in a line, the sender on one CPU and everything else on the
//! other.

use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::contestant::{Contestant, Ends, PORT, Program, words};
use super::grid::Cell;
use super::witness::{Seen, Witness, now};
use crate::lab::sibling;
use crate::{Interrupt, Lab, Node, Server, finish};

/// CPU of the sender.
const SENDER_CPU: &str = "0";
/// CPU of the receivers.
const FAR_CPU: &str = "1";

/// Maximum duration of a stream, in seconds.
const MAX_STREAM_SECONDS: &str = "20";

/// Interfaces of a lab are named after the node they lead to.
const TO_FAR: &str = "n2";
const TO_SENDER: &str = "n1";

/// Pairs per turn, and the interval between them in microseconds.
pub(super) const PAIRS: u64 = 100;
const PAIR_GAP_US: u64 = 1_000;

/// A running lab with a witness and the receivers of senders that need one.
pub(super) struct Arena {
    witness: Witness,
    /// Receivers, stopped before their nodes.
    _receivers: Vec<Server>,
    lab: Lab,
    ends: Ends,
}

/// Time span of a turn; all arrivals within it belong to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    from: i64,
    until: i64,
    size: u32,
    /// Packets per train; only dwell numbers its packets.
    train: Option<u64>,
}

/// First number of warm-up, lead-in and engine selection packets (docs/pace.md).
const FIRST_UNCOUNTED_SEQ: u64 = 1 << 63;

impl Turn {
    /// Returns the timestamps of each stream. dwell's streams are separated by packet numbers, with
    /// one number left out between trains; other senders send one stream per turn.
    pub(super) fn streams(&self, seen: &Seen) -> Vec<Vec<i64>> {
        let from = seen.arrivals.partition_point(|arrival| arrival.at < self.from);
        let until = seen.arrivals.partition_point(|arrival| arrival.at <= self.until);
        let within = seen.arrivals[from..until.max(from)].iter();
        let of_size = within.filter(|arrival| arrival.size == self.size);
        let mut streams = BTreeMap::<u64, Vec<i64>>::new();
        for arrival in of_size {
            let stream = match self.train {
                None => Some(0),
                Some(packets) => {
                    let own = arrival.seq.filter(|seq| *seq < FIRST_UNCOUNTED_SEQ);
                    own.map(|seq| seq / (packets + 1))
                }
            };
            if let Some(stream) = stream {
                streams.entry(stream).or_default().push(arrival.at);
            }
        }
        streams.into_values().collect()
    }
}

/// Returns all streams that a contestant sent in its turns.
///
/// # Errors
/// Fewer than `asked` arrived; the rest may be a biased selection.
pub(super) fn all_streams(sent: &[Turn], seen: &Seen, asked: usize) -> Result<Vec<Vec<i64>>> {
    let streams: Vec<_> = sent.iter().flat_map(|turn| turn.streams(seen)).collect();
    ensure!(streams.len() >= asked, "{} of {asked} streams arrived", streams.len());
    Ok(streams)
}

impl Arena {
    /// Starts the witness and the receivers that `contestants` need.
    pub(super) fn new(lab: Lab, contestants: &[&Contestant]) -> Result<Self> {
        let mut receivers = Vec::new();
        let mut start = |program: &str, words: &[&str], ready: &str| {
            let mut command = lab.on(Node::N2, "taskset");
            command.args(["-c", FAR_CPU, "stdbuf", "-oL", program]).args(words);
            receivers.push(Server::start(command, Some(ready))?);
            anyhow::Ok(())
        };
        for contestant in contestants {
            match contestant.program {
                Program::Iperf3 => start("iperf3", &["-s", "--forceflush"], "listening on")?,
                Program::Ditg => start("ITGRecv", &[], "to terminate")?,
                _ => {}
            }
        }
        let ends = Ends {
            from: lab.address(Node::N1)?.to_string(),
            to: lab.address(Node::N2)?.to_string(),
            from_mac: mac(lab.on(Node::N1, "ip"), TO_FAR)?,
            to_mac: mac(lab.on(Node::N2, "ip"), TO_SENDER)?,
            interface: TO_FAR.to_owned(),
        };
        Ok(Self { witness: Witness::start(&lab)?, _receivers: receivers, lab, ends })
    }

    /// Returns the arrivals since the last call.
    pub(super) fn seen(&self) -> Result<Seen> {
        self.witness.seen()
    }

    /// Sends a contestant's streams: dwell in one run, others with one process per stream.
    pub(super) fn streams(
        &self,
        contestant: &Contestant,
        cell: Cell,
        interrupt: &Interrupt,
    ) -> Result<Vec<Turn>> {
        let streams = contestant.streams();
        let (program, words) = words(contestant.program, cell, streams, &self.ends);
        let send = |train| {
            let command = self.sender(program, &words)?;
            turn(command, contestant.name, cell.ip_size, train, interrupt)
        };
        match contestant.program {
            Program::Dwell { .. } => Ok(vec![send(Some(cell.count()))?]),
            _ => (0..streams).map(|_| send(None)).collect(),
        }
    }

    /// Sends pairs of packets with dwell's `engine`, or with two sends in C.
    pub(super) fn pairs(
        &self,
        engine: Option<&str>,
        ip_size: u32,
        interrupt: &Interrupt,
    ) -> Result<Turn> {
        let cell = Cell { mbits: 1, ip_size, of_frames: false };
        let (to, count) = (&self.ends.to, PAIRS.to_string());
        let Some(engine) = engine else {
            let (port, payload) = (PORT.to_string(), cell.payload().to_string());
            let gap = (PAIR_GAP_US * 1_000_000).to_string();
            let words = ["pair", to, &port, &payload, &gap, &count].map(str::to_owned);
            return turn(self.sender("cpace", &words)?, "C", ip_size, None, interrupt);
        };
        let (url, size) = (format!("udp://{to}:{PORT}"), format!("{ip_size}B"));
        let gap = format!("{PAIR_GAP_US}us");
        let mut words = vec!["pace", &url, "--pattern", "pair", "--pairs", &count, "--gap", &gap];
        words.extend(["--size", &size, "--repeat", "1", "--engine", engine, "-q", "--json"]);
        if engine == "gso" {
            // The far end timestamps: a tap on this side would widen the gaps.
            words.extend(["--switch-offloads", "--stamps", "user"]);
        }
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        turn(self.sender("dwell", &words)?, engine, ip_size, Some(2), interrupt)
    }

    /// Returns a command on the sender's CPU. dwell has other threads too and pins the sending one
    /// itself.
    fn sender(&self, program: &str, words: &[String]) -> Result<Command> {
        if program == "dwell" {
            let mut command = self.lab.dwell_on(Node::N1);
            command.args(words).args(["--cpu", SENDER_CPU]);
            return Ok(command);
        }
        let mut command = self.lab.on(Node::N1, "timeout");
        command.args([MAX_STREAM_SECONDS, "taskset", "-c", SENDER_CPU]);
        match program {
            "cpace" => command.arg(sibling(program)?),
            peer => command.arg(peer),
        };
        command.args(words);
        Ok(command)
    }
}

fn turn(
    mut command: Command,
    name: &str,
    size: u32,
    train: Option<u64>,
    interrupt: &Interrupt,
) -> Result<Turn> {
    // Keep standard error for the failure message only.
    let mut talk = tempfile::tempfile().context("cannot create a file for its output")?;
    command.stderr(talk.try_clone().context("cannot share a file")?);
    let from = now()?;
    let finished = finish(command, interrupt)?;
    if !finished.status.success() {
        let mut said = String::new();
        talk.rewind()
            .and_then(|()| talk.read_to_string(&mut said))
            .context("cannot read its output")?;
        let word = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        bail!("{name}: {}: {word}", finished.status);
    }
    Ok(Turn { from, until: now()?, size, train })
}

#[derive(Deserialize)]
struct Link {
    address: String,
}

/// Returns the Ethernet address of a node's interface.
fn mac(mut ip: Command, interface: &str) -> Result<String> {
    let output = ip.args(["-json", "link", "show", "dev", interface]).output();
    let output = output.context("cannot start ip")?;
    let links: Vec<Link> = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("no link {interface} in the lab"))?;
    let link = links.into_iter().next().context("ip printed no link")?;
    Ok(link.address)
}

#[cfg(test)]
mod tests {
    use super::super::witness::Arrival;
    use super::*;

    /// Arrivals: time, size, and number if they are dwell's.
    fn seen(packets: &[(i64, u32, Option<u64>)]) -> Seen {
        let arrival = |&(at, size, seq): &_| Arrival { at, size, seq };
        Seen { arrivals: packets.iter().map(arrival).collect(), missed: 0 }
    }

    #[test]
    fn stream_excludes_other_sizes_and_times() {
        let seen = seen(&[(1, 200, None), (2, 200, None), (3, 60, None), (5, 200, None)]);
        let turn = Turn { from: 2, until: 5, size: 200, train: None };
        assert_eq!(turn.streams(&seen), [[2, 5]]);
        assert!(Turn { from: 6, until: 7, ..turn }.streams(&seen).is_empty());
    }

    #[test]
    fn streams_of_one_run_are_separated() {
        let train = |at: i64, first: u64| {
            [u64::MAX, first, first + 1, first + 2]
                .map(|seq| (at + (seq as i64 & 15), 200, Some(seq)))
        };
        let warm_up =
            [(1, 200, Some(FIRST_UNCOUNTED_SEQ)), (2, 200, Some(FIRST_UNCOUNTED_SEQ + 1))];
        let all =
            [&warm_up[..], &[(3, 200, Some(u64::MAX))], &train(10, 0)[1..], &train(30, 4)[1..]];
        // A lost packet shortens its train and leaves the others unchanged.
        let mut all = all.concat();
        all.remove(4);
        let turn = Turn { from: 1, until: 99, size: 200, train: Some(3) };
        assert_eq!(turn.streams(&seen(&all)), [vec![10, 12], vec![34, 35, 36]]);
    }

    #[test]
    fn turn_with_missing_stream_fails() {
        let train = |first: u64| (0..3).map(move |n| (1, 200, Some(first + n)));
        let seen = seen(&train(0).chain(train(8)).collect::<Vec<_>>());
        let dwell = Turn { from: 1, until: 1, size: 200, train: Some(3) };
        assert_eq!(all_streams(&[dwell], &seen, 2).unwrap().len(), 2);
        assert!(all_streams(&[dwell], &seen, 3).is_err());
        // Other senders use one process per stream; no packet of the second arrived.
        let first = Turn { train: None, ..dwell };
        let second = Turn { from: 2, until: 3, ..first };
        assert!(all_streams(&[first, second], &seen, 2).is_err());
    }
}
