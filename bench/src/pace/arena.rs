//! Where senders are measured: a line of two nodes, the sender on one core, everything else on the
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

/// Core of the sender.
const SENDER: &str = "0";
/// Core of the receivers.
const FAR: &str = "1";

/// No stream takes so long, in seconds.
const LONGEST: &str = "20";

/// Interfaces of a lab are called after the node they lead to.
const TO_FAR: &str = "n2";
const TO_SENDER: &str = "n1";

/// Pairs that are sent in one turn, and from one to the next.
pub(super) const PAIRS: u64 = 100;
const PAIR_GAP_US: u64 = 1_000;

/// A lab that is up, with a witness, and with the receivers of those who do not send without.
pub(super) struct Arena {
    witness: Witness,
    /// They end before their nodes do.
    _receivers: Vec<Server>,
    lab: Lab,
    ends: Ends,
}

/// When a turn was had: what arrived meanwhile was its.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    from: i64,
    until: i64,
    size: u32,
    /// Packets of each train, of dwell's, which numbers them.
    train: Option<u64>,
}

/// What warms up, leads a train or is sent to choose an engine has larger numbers (docs/pace.md).
const UNCOUNTED: u64 = 1 << 63;

impl Turn {
    /// The stamps of the packets of each stream: of dwell's by their numbers, of which one is left out
    /// between two trains; all others send one stream in a turn.
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
                    let own = arrival.seq.filter(|seq| *seq < UNCOUNTED);
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

/// The streams of all that a contestant sent in its turn.
///
/// # Errors
/// Fewer than `asked` arrived: those that did may be the better ones.
pub(super) fn all_streams(sent: &[Turn], seen: &Seen, asked: usize) -> Result<Vec<Vec<i64>>> {
    let streams: Vec<_> = sent.iter().flat_map(|turn| turn.streams(seen)).collect();
    ensure!(streams.len() >= asked, "{} of {asked} streams arrived", streams.len());
    Ok(streams)
}

impl Arena {
    /// Starts the receivers, those of `contestants` too.
    pub(super) fn new(lab: Lab, contestants: &[&Contestant]) -> Result<Self> {
        let mut receivers = Vec::new();
        let mut start = |program: &str, words: &[&str], ready: &str| {
            let mut command = lab.on(Node::N2, "taskset");
            command.args(["-c", FAR, "stdbuf", "-oL", program]).args(words);
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

    /// What arrived since the last time.
    pub(super) fn seen(&self) -> Result<Seen> {
        self.witness.seen()
    }

    /// Has a contestant send its streams: dwell by one run of the program, others by one each.
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

    /// Two packets one after the other, by dwell's `engine` or by two sends in C.
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
            // The far end stamps: a tap at this one would set the packets further apart.
            words.extend(["--switch-offloads", "--stamps", "user"]);
        }
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        turn(self.sender("dwell", &words)?, engine, ip_size, Some(2), interrupt)
    }

    /// A command on the sender's core. dwell has threads besides the one that sends, and is told
    /// where that one belongs.
    fn sender(&self, program: &str, words: &[String]) -> Result<Command> {
        if program == "dwell" {
            let mut command = self.lab.dwell_on(Node::N1);
            command.args(words).args(["--cpu", SENDER]);
            return Ok(command);
        }
        let mut command = self.lab.on(Node::N1, "timeout");
        command.args([LONGEST, "taskset", "-c", SENDER]);
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
    // It talks of what it does; only why it failed is of interest.
    let mut talk = tempfile::tempfile().context("cannot make a file for its talk")?;
    command.stderr(talk.try_clone().context("cannot share a file")?);
    let from = now()?;
    let finished = finish(command, interrupt)?;
    if !finished.status.success() {
        let mut said = String::new();
        talk.rewind()
            .and_then(|()| talk.read_to_string(&mut said))
            .context("cannot read its talk")?;
        let word = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        bail!("{name}: {}: {word}", finished.status);
    }
    Ok(Turn { from, until: now()?, size, train })
}

#[derive(Deserialize)]
struct Link {
    address: String,
}

/// The Ethernet address of a node's interface.
fn mac(mut ip: Command, interface: &str) -> Result<String> {
    let output = ip.args(["-json", "link", "show", "dev", interface]).output();
    let output = output.context("cannot start ip")?;
    let links: Vec<Link> = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("no link {interface} in the lab"))?;
    let link = links.into_iter().next().context("ip says nothing")?;
    Ok(link.address)
}

#[cfg(test)]
mod tests {
    use super::super::witness::Arrival;
    use super::*;

    /// Of a size; with numbers, if they are dwell's.
    fn seen(packets: &[(i64, u32, Option<u64>)]) -> Seen {
        let arrival = |&(at, size, seq): &_| Arrival { at, size, seq };
        Seen { arrivals: packets.iter().map(arrival).collect(), missed: 0 }
    }

    #[test]
    fn what_talks_about_a_stream_and_what_came_at_another_time_is_not_of_it() {
        let seen = seen(&[(1, 200, None), (2, 200, None), (3, 60, None), (5, 200, None)]);
        let turn = Turn { from: 2, until: 5, size: 200, train: None };
        assert_eq!(turn.streams(&seen), [[2, 5]]);
        assert!(Turn { from: 6, until: 7, ..turn }.streams(&seen).is_empty());
    }

    #[test]
    fn streams_of_one_run_are_told_apart_and_what_leads_them_is_of_none() {
        let train = |at: i64, first: u64| {
            [u64::MAX, first, first + 1, first + 2]
                .map(|seq| (at + (seq as i64 & 15), 200, Some(seq)))
        };
        let warm_up = [(1, 200, Some(UNCOUNTED)), (2, 200, Some(UNCOUNTED + 1))];
        let all =
            [&warm_up[..], &[(3, 200, Some(u64::MAX))], &train(10, 0)[1..], &train(30, 4)[1..]];
        // A packet that was lost leaves its train shorter, and the others as they are.
        let mut all = all.concat();
        all.remove(4);
        let turn = Turn { from: 1, until: 99, size: 200, train: Some(3) };
        assert_eq!(turn.streams(&seen(&all)), [vec![10, 12], vec![34, 35, 36]]);
    }

    #[test]
    fn a_turn_of_which_a_stream_lacks_has_failed() {
        let train = |first: u64| (0..3).map(move |n| (1, 200, Some(first + n)));
        let seen = seen(&train(0).chain(train(8)).collect::<Vec<_>>());
        let dwell = Turn { from: 1, until: 1, size: 200, train: Some(3) };
        assert_eq!(all_streams(&[dwell], &seen, 2).unwrap().len(), 2);
        assert!(all_streams(&[dwell], &seen, 3).is_err());
        // The others send each stream by a process of its own; of the second nothing arrived.
        let first = Turn { train: None, ..dwell };
        let second = Turn { from: 2, until: 3, ..first };
        assert!(all_streams(&[first, second], &seen, 2).is_err());
    }
}
