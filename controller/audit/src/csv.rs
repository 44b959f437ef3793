//! Reads CSV files of any length with bounded memory. Two threads parse blocks of lines.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use crate::block::Block;
use crate::build::TableBuilder;
use crate::columns::Mapping;
use crate::error::AuditError;
use crate::layout::Layout;
use crate::records;
use crate::table::Table;

/// Number of bytes read at once.
const BLOCK_LEN: usize = 1 << 20;
/// Maximum length of a line.
const MAX_LINE_LEN: usize = 1 << 20;
/// Number of threads that parse.
const PARSER_THREADS: usize = 2;

/// Reads a file as a table. `mappings` name and describe its columns.
///
/// # Errors
/// If the file cannot be read, has no header, or lacks a column of `mappings`.
pub fn read_file(path: &Path, mappings: &[Mapping]) -> Result<Table, AuditError> {
    let shown = path.display().to_string();
    let failed = |source| AuditError::Read { path: shown.clone(), source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(failed(std::io::ErrorKind::IsADirectory.into()));
    }
    read(file, &shown, mappings)
}

/// Reads a table from any input; `source` names it in errors.
///
/// # Errors
/// As [`read_file`].
pub fn read(mut input: impl Read, source: &str, mappings: &[Mapping]) -> Result<Table, AuditError> {
    let mut lines = Lines { input: &mut input, carry: Vec::new(), at_end: false };
    let failed = |error: LineError| match error {
        LineError::Io(error) => AuditError::Read { path: source.to_owned(), source: error },
        LineError::TooLong => AuditError::NoTable {
            path: source.to_owned(),
            reason: format!("a line is longer than {MAX_LINE_LEN} bytes"),
        },
    };
    let Some(mut head) = lines.next_block().map_err(failed)? else {
        let reason = "the file is empty; a table starts with a header".to_owned();
        return Err(AuditError::NoTable { path: source.to_owned(), reason });
    };
    if lines.at_end
        && let Some(plain) = without_frame(&head)
    {
        head = plain;
    }
    let layout = Layout::infer(&head, mappings).map_err(|error| error.of_file(source))?;
    let mut builder = TableBuilder::new(&layout, source);
    head.drain(..layout.header_len);
    if lines.at_end {
        builder.add(Block::parse(&head, &layout));
        return Ok(builder.finish());
    }
    read_parallel(&mut lines, head, &layout, &mut builder).map_err(failed)?;
    Ok(builder.finish())
}

/// A table as in Markdown without its frame: `| a | b |` becomes `a | b`, and the line below the
/// header is left out. `None` for other files.
fn without_frame(text: &[u8]) -> Option<Vec<u8>> {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let is_framed = |line: &[u8]| line.len() > 2 && line.starts_with(b"|") && line.ends_with(b"|");
    lines.clone().find(|line| !line.is_empty()).filter(|line| is_framed(line))?;
    let mut plain = Vec::with_capacity(text.len());
    let is_rule =
        |line: &[u8]| line.iter().all(|byte| b"|-:+= ".contains(byte)) && line.contains(&b'-');
    for line in lines.by_ref().filter(|line| !is_rule(line)) {
        let inside = if is_framed(line) { &line[1..line.len() - 1] } else { line };
        plain.extend_from_slice(inside);
        plain.push(b'\n');
    }
    Some(plain)
}

/// Parses blocks on several threads and adds them in their order.
fn read_parallel(
    lines: &mut Lines<'_, impl Read>,
    head: Vec<u8>,
    layout: &Layout,
    builder: &mut TableBuilder,
) -> Result<(), LineError> {
    thread::scope(|scope| {
        let mut parsers = Vec::new();
        for _ in 0..PARSER_THREADS {
            let (to_parser, blocks) = sync_channel::<Vec<u8>>(1);
            let (parsed, from_parser) = sync_channel::<Block>(1);
            scope.spawn(move || {
                for bytes in blocks {
                    if parsed.send(Block::parse(&bytes, layout)).is_err() {
                        return;
                    }
                }
            });
            parsers.push((to_parser, from_parser));
        }
        let mut next = Some(head);
        let (mut sent, mut added) = (0, 0);
        loop {
            if let Some(bytes) = next.take() {
                // Fails only if a parser panicked, which the scope reports.
                let _ = parsers[sent % PARSER_THREADS].0.send(bytes);
                sent += 1;
                next = lines.next_block()?;
            }
            let is_full = sent - added >= PARSER_THREADS;
            if added < sent && (next.is_none() || is_full) {
                let Ok(block) = parsers[added % PARSER_THREADS].1.recv() else { return Ok(()) };
                builder.add(block);
                added += 1;
            } else if next.is_none() {
                return Ok(());
            }
        }
    })
}

enum LineError {
    Io(std::io::Error),
    TooLong,
}

/// Reads blocks of whole rows.
struct Lines<'r, R> {
    input: &'r mut R,
    /// Beginning of a row whose end is not read yet.
    carry: Vec<u8>,
    at_end: bool,
}

impl<R: Read> Lines<'_, R> {
    fn next_block(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        if self.at_end {
            return Ok(None);
        }
        let mut block = Vec::with_capacity(BLOCK_LEN + self.carry.len());
        block.append(&mut self.carry);
        loop {
            let before = block.len();
            let wanted = BLOCK_LEN.saturating_sub(before).max(1 << 16) as u64;
            let read = self.input.by_ref().take(wanted).read_to_end(&mut block);
            let read = read.map_err(LineError::Io)?;
            if read == 0 {
                self.at_end = true;
                return Ok((!block.is_empty()).then_some(block));
            }
            if block.len() < BLOCK_LEN {
                continue;
            }
            if let Some(len) = records::whole_rows_len(&block) {
                self.carry.extend_from_slice(&block[len..]);
                block.truncate(len);
                return Ok(Some(block));
            }
            if block.len() > MAX_LINE_LEN {
                return Err(LineError::TooLong);
            }
        }
    }
}
