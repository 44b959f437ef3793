//! Results that Mok 2015 published for four boards, for comparison in one table.
//!
//! Mok 2015 defines no tolerance for "accurate" and takes its timestamps in a kernel module. Sizes
//! are as printed there: the largest, called an IP packet of 1514 B, is a frame of that size.

pub(crate) mod claims;

use std::sync::LazyLock;

use dwell_report::analysis::paced::is_paced;
use dwell_report::model::quantity::count;
use dwell_report::model::{Published, PublishedLimit, PublishedRate, PublishedSender, RunData};
use dwell_units::{BitRate, Bytes};
use serde::Deserialize;

use crate::Document;

const CITE: &str = "Mok 2015";

/// The document.
pub(crate) const DOCUMENT: Document = Document {
    name: "mok-2015",
    aliases: &["s2"],
    cite: CITE,
    judge: Some(claims::judge),
    published,
};

/// The boards of table 2 (S2.7) with their verdicts, and the rates in the text (S2.8). Requested were 1,
/// 5, 10, 50, 100 and 1,000 Mbit/s, as far as the interface supports them (S2.5).
static PAPER: LazyLock<Paper> = LazyLock::new(|| read().unwrap_or_default());

fn read() -> Result<Paper, toml::de::Error> {
    toml::from_str(include_str!("../data/mok-2015/boards.toml"))
}

/// The file of boards.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    board: Vec<Board>,
    rate: Vec<MeasuredRate>,
}

/// A board with its verdict.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Board {
    name: String,
    cpu_mhz: u32,
    ram_mib: u64,
    /// Interface speed.
    link: RateText,
    os: String,
    /// Approximate price in 2015.
    price_usd: u32,
    /// Networks it can measure with packets of every tested size.
    all_sizes: Option<LimitText>,
    /// Networks it can measure with large packets.
    large_packets: Option<LimitText>,
    /// Place in the document.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    source: String,
}

/// A rate in the text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredRate {
    sender: String,
    /// Smallest and largest requested rate.
    requested: (RateText, RateText),
    flows: u32,
    measured: RateText,
    /// Place in the document.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    source: String,
}

/// A rate such as `50Mbit/s`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct RateText(BitRate);

impl TryFrom<String> for RateText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("'{text}' is no rate"))
    }
}

/// A verdict on a board.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LimitText {
    UpTo(RateText),
    Below(RateText),
}

/// A board without a verdict on rates is not suitable.
fn limit(verdict: Option<LimitText>) -> PublishedLimit {
    match verdict {
        Some(LimitText::UpTo(RateText(rate))) => PublishedLimit::UpTo(rate),
        Some(LimitText::Below(RateText(rate))) => PublishedLimit::Below(rate),
        None => PublishedLimit::NotSuitable,
    }
}

fn rate(found: &'static MeasuredRate) -> PublishedRate {
    PublishedRate {
        cite: CITE,
        sender: &found.sender,
        requested: (found.requested.0.0, found.requested.1.0),
        flows: found.flows,
        frame: Bytes(1_514),
        ip: Bytes(1_500),
        measured: found.measured.0,
    }
}

/// The boards and rates, for a run that measures send-time accuracy.
fn published(run: &RunData) -> Published {
    if !is_paced(run) {
        return Published::default();
    }
    Published {
        senders: senders(),
        rates: PAPER.rate.iter().map(rate).collect(),
        remarks: vec!["Below are the boards of Mok 2015, which does not define accurate."],
        ..Published::default()
    }
}

/// The boards with their verdicts, in the order of the paper.
pub(crate) fn senders() -> Vec<PublishedSender> {
    PAPER.board.iter().map(sender).collect()
}

fn sender(board: &'static Board) -> PublishedSender {
    PublishedSender {
        cite: CITE,
        name: &board.name,
        engine: "kernel module",
        hardware: format!(
            "{} MHz, {} MiB, {} interface, {}, about ${} then",
            count(board.cpu_mhz.into()),
            count(board.ram_mib),
            board.link.0,
            board.os,
            board.price_usd
        ),
        largest: vec![
            ("all sizes", limit(board.all_sizes)),
            ("large packets", limit(board.large_packets)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_and_rate_is_read_and_has_a_source() {
        let paper = read().unwrap();
        assert_eq!((paper.board.len(), paper.rate.len()), (4, 3));
        let boards = paper.board.iter().map(|board| &board.source);
        let rates = paper.rate.iter().map(|rate| &rate.source);
        assert!(boards.chain(rates).all(|source| source.contains("section 4")));
    }

    #[test]
    fn published_rates_fit_interface_and_packet_size() {
        for board in &PAPER.board {
            let limits = [board.all_sizes, board.large_packets].map(|it| limit(it).rate());
            assert!(limits[0] <= limits[1] && limits[1] <= Some(board.link.0), "{}", board.name);
        }
    }

    #[test]
    fn published_rate_is_below_the_requested_rate() {
        for rate in PAPER.rate.iter().map(rate) {
            let board = PAPER.board.iter().find(|board| board.name == rate.sender).unwrap();
            assert!(rate.requested.0 <= rate.requested.1 && rate.requested.1 <= board.link.0);
            assert!(rate.measured < rate.requested.1, "{}", board.name);
        }
    }

    #[test]
    fn published_verdicts_print_as_in_the_paper() {
        let words: Vec<_> =
            PAPER.board.iter().map(|board| limit(board.all_sizes).to_string()).collect();
        assert_eq!(words, ["below 50Mbit/s", "not suitable", "10Mbit/s", "50Mbit/s"]);
    }
}
