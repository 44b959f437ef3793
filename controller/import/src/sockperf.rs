//! The file of `sockperf --full-log` (3.7): sockperf's messages, then a line per reply with
//! timestamps of its own clock in seconds.

use std::io::BufRead;

use dwell_record::{Column, Packets};
use dwell_sample::State;

use crate::decimal::scaled;
use crate::lines::Lines;
use crate::sink::{FlowNumber, Sink};
use crate::{ImportError, Imported};

pub(crate) fn read(input: &mut dyn BufRead, mut sink: Sink) -> Result<Imported, ImportError> {
    let mut lines = Lines::of(input);
    let mut log = Log { flow: sink.only_flow(), server: None, rows: false, last: None };
    while let Some((number, line)) = lines.next().map_err(ImportError::Read)? {
        let text = String::from_utf8_lossy(line);
        match row(&text) {
            Some(row) if log.rows => log.row(row, &mut sink)?,
            _ if log.rows && text.starts_with(|c: char| c.is_ascii_digit()) => {
                sink.skip(number, line);
            }
            _ => match log.talk(&text, &mut sink) {
                true => sink.understood(),
                false => sink.skip(number, line),
            },
        }
    }
    sink.finish()
}

struct Log {
    flow: FlowNumber,
    /// The server number, once the file names one.
    server: Option<String>,
    /// Whether the column headings were read.
    rows: bool,
    /// Send time of the previous row.
    last: Option<i64>,
}

impl Log {
    fn row(&mut self, row: Row, sink: &mut Sink) -> Result<(), ImportError> {
        let gap = self.last.and_then(|last| row.tx.checked_sub(last));
        self.last = Some(row.tx);
        sink.row(self.flow, row.id, State::Received)?
            .set(Column::Rtt, row.rx.checked_sub(row.tx))
            .set(Column::Gap, gap);
        Ok(())
    }

    /// Parses a line that is not a row. Returns false if sockperf does not print such a line.
    fn talk(&mut self, text: &str, sink: &mut Sink) -> bool {
        if let Some(columns) = text.strip_prefix("packet, txTime(sec), rxTime(sec), ") {
            self.rows = true;
            sink.parameter("last_column", columns);
            return true;
        }
        if let Some((_, server)) = text.split_once("Printing statistics for Server No: ") {
            return self.section(server, sink);
        }
        if text.contains("# dropped messages = ") {
            sink.packets(self.flow, counters(text));
            return true;
        }
        if let Some((_, options)) = text.split_once("using the following parameters: ") {
            for option in options.split_whitespace().take(64) {
                let option = option.trim_start_matches("--");
                let (name, value) = option.split_once('=').unwrap_or((option, "true"));
                sink.parameter(&name.replace('-', "_"), value);
            }
            return true;
        }
        text.is_empty() || text.starts_with("sockperf") || text.starts_with("-----")
    }

    /// Starts the section of another server.
    fn section(&mut self, server: &str, sink: &mut Sink) -> bool {
        if self.server.as_deref().is_some_and(|known| known != server) {
            let Some(flow) = sink.flow(&format!("server {}", server.trim())) else { return false };
            self.flow = flow;
        }
        self.server = Some(server.to_owned());
        (self.rows, self.last) = (false, None);
        true
    }
}

struct Row {
    id: u64,
    tx: i64,
    rx: i64,
}

/// Parses `packet, txTime, rxTime, latency`. The latency is halved before it is printed, so the
/// difference of the timestamps is more precise. Rows with a reply before its request are refused.
fn row(text: &str) -> Option<Row> {
    let mut cells = text.split(", ");
    let id = cells.next()?.parse().ok()?;
    let tx = scaled(cells.next()?.as_bytes(), 9)?;
    let rx = scaled(cells.next()?.as_bytes(), 9)?;
    scaled(cells.next()?.as_bytes(), 3)?;
    (cells.next().is_none() && rx >= tx).then_some(Row { id, tx, rx })
}

/// `# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0`
fn counters(text: &str) -> Packets {
    let after = |name: &str| {
        let (_, rest) = text.split_once(name)?;
        rest.split(';').next()?.trim().parse().ok()
    };
    let lost = after("# dropped messages = ").unwrap_or(0);
    Packets {
        sent: lost,
        lost,
        duplicate: after("# duplicated messages = ").unwrap_or(0),
        reordered: after("# out-of-order messages = ").unwrap_or(0),
        ..Packets::default()
    }
}
