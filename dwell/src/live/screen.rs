//! Draws buffers in place, with relative cursor movements only.
//!
//! ratatui's inline viewport asks the terminal for the cursor position, which needs raw mode, takes
//! typed characters and fails on terminals that do not answer. This module needs no answers: it
//! counts the lines that it has written, like a progress bar. Line feeds scroll the terminal where
//! needed, so the scrollback keeps everything above the view.

use std::fmt::Write as _;
use std::io::{self, Write};

use dwell_node_cli::terminal::escaped;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;

/// Erases from the cursor to the end of the line.
const ERASE_LINE: &str = "\x1b[K";

/// Erases from the cursor to the end of the screen.
const ERASE_BELOW: &str = "\x1b[J";

/// A view on a terminal. The cursor is on the line below it, in the first column.
#[derive(Debug)]
pub(super) struct Screen<W> {
    to: W,
    /// Width of the terminal in columns.
    columns: u16,
    /// Lines of the view as on the terminal, with the number of columns that each uses.
    lines: Vec<(String, u16)>,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, columns: 0, lines: Vec::new() }
    }

    /// Prints `messages` above the view and draws `buffer` on a terminal of this many columns. Writes
    /// only lines that changed, with one call.
    pub(super) fn draw(
        &mut self,
        buffer: &Buffer,
        columns: u16,
        messages: &[String],
    ) -> io::Result<()> {
        let mut next = Vec::new();
        let width = usize::from(buffer.area.width.max(1));
        next.extend(buffer.content.chunks(width).map(line));
        let is_resized = columns != self.columns;
        if next == self.lines && !is_resized && messages.is_empty() {
            return Ok(());
        }
        let mut out = String::new();
        up(&mut out, self.height_at(columns));
        let is_moved = is_resized || !messages.is_empty() || next.len() != self.lines.len();
        for line in messages.iter().flat_map(|message| message.split('\n')) {
            let line = escaped(line);
            out.push_str(&line);
            // After a full line, the cursor is on its last character.
            let width = Span::raw(&*line).width();
            if width == 0 || !width.is_multiple_of(usize::from(columns.max(1))) {
                out.push_str(ERASE_LINE);
            }
            out.push_str("\r\n");
        }
        for (n, line) in next.iter().enumerate() {
            if is_moved || self.lines.get(n) != Some(line) {
                out.push_str(&line.0);
                out.push_str(ERASE_LINE);
            }
            out.push_str("\r\n");
        }
        // Not before the lines: tmux copies a screen that is erased from its top to the scrollback.
        if is_moved && !self.lines.is_empty() {
            out.push_str(ERASE_BELOW);
        }
        self.lines = next;
        self.columns = columns;
        self.to.write_all(out.as_bytes())?;
        self.to.flush()
    }

    /// Leaves the view where it is: the next one is drawn below the cursor.
    pub(super) fn abandon(&mut self) {
        self.lines.clear();
    }

    /// Height of the view on a terminal of this width. A terminal that became narrower has wrapped its
    /// lines.
    fn height_at(&self, columns: u16) -> usize {
        let wrapped = |used: u16| usize::from(used.div_ceil(columns.max(1)).max(1));
        self.lines.iter().map(|(_, used)| wrapped(*used)).sum()
    }
}

/// Moves the cursor to the first column, `lines` lines up.
fn up(out: &mut String, lines: usize) {
    out.push('\r');
    if lines > 0 {
        // Writing to a string cannot fail.
        let _ = write!(out, "\x1b[{lines}A");
    }
}

/// A line of cells as text with colours, without trailing blanks, and the columns that it uses.
fn line(cells: &[ratatui::buffer::Cell]) -> (String, u16) {
    let used = cells.iter().rposition(|cell| cell.symbol() != " ").map_or(0, |last| last + 1);
    let mut text = String::new();
    let mut style = String::new();
    let mut hidden = 0;
    for cell in &cells[..used] {
        // Cells covered by a wide character to their left.
        if hidden > 0 {
            hidden -= 1;
            continue;
        }
        hidden = Span::raw(cell.symbol()).width().saturating_sub(1);
        let wanted = sgr(cell.fg, cell.modifier);
        if wanted != style {
            let _ = write!(text, "\x1b[0{wanted}m");
            style = wanted;
        }
        text.push_str(cell.symbol());
    }
    if !style.is_empty() {
        text.push_str("\x1b[0m");
    }
    (text, used as u16)
}

/// Parameters of Select Graphic Rendition after a reset, for the styles that the views use.
fn sgr(color: Color, modifier: Modifier) -> String {
    let mut parameters = String::new();
    if modifier.contains(Modifier::BOLD) {
        parameters.push_str(";1");
    }
    parameters.push_str(match color {
        Color::Red => ";31",
        Color::Green => ";32",
        Color::Yellow => ";33",
        Color::Cyan => ";36",
        _ => "",
    });
    parameters
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    fn emulator(lines: u16, columns: u16) -> vt100::Parser {
        vt100::Parser::new(lines.try_into().unwrap(), columns.try_into().unwrap(), 100)
    }

    /// A terminal of 6 lines by 20 columns with one line of earlier output.
    fn terminal() -> vt100::Parser {
        let mut terminal = emulator(6, 20);
        terminal.process(b"$ dwell\r\n");
        terminal
    }

    fn buffer(lines: &[&str]) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 19, lines.len() as u16));
        for (y, text) in (0..).zip(lines) {
            buffer.set_string(0, y, text, Style::new());
        }
        buffer
    }

    fn contents(terminal: &vt100::Parser) -> String {
        terminal.screen().contents()
    }

    /// Draws and returns the number of bytes written.
    fn draw(
        screen: &mut Screen<Vec<u8>>,
        terminal: &mut vt100::Parser,
        lines: &[&str],
        messages: &[&str],
    ) -> usize {
        let messages: Vec<_> = messages.iter().map(|&text| text.to_owned()).collect();
        let columns = terminal.screen().size().1.get();
        screen.draw(&buffer(lines), columns, &messages).unwrap();
        let text = String::from_utf8(std::mem::take(&mut screen.to)).unwrap();
        // The line discipline of a terminal adds the carriage return to a line feed.
        terminal.process(text.replace("\r\n", "\n").replace('\n', "\r\n").as_bytes());
        text.len()
    }

    #[test]
    fn view_redraws_in_place_and_messages_go_above() {
        let (mut screen, mut terminal) = (Screen::new(Vec::new()), terminal());
        draw(&mut screen, &mut terminal, &["one", "two"], &[]);
        draw(&mut screen, &mut terminal, &["one", "2"], &["hey\u{1b}[2J"]);
        assert_eq!(contents(&terminal), "$ dwell\nhey\\u001b[2J\none\n2");
        assert_eq!(terminal.screen().cursor_position(), (4, 0));
        draw(&mut screen, &mut terminal, &["one"], &[&"m".repeat(20), ""]);
        let full = "m".repeat(20);
        assert_eq!(contents(&terminal), format!("$ dwell\nhey\\u001b[2J\n{full}\n\none"));
        assert_eq!(draw(&mut screen, &mut terminal, &["one"], &[]), 0, "nothing changed");
    }

    #[test]
    fn view_at_the_bottom_scrolls_earlier_output() {
        let (mut screen, mut terminal) = (Screen::new(Vec::new()), terminal());
        for n in 0..3 {
            let count = n.to_string();
            draw(&mut screen, &mut terminal, &["a", "b", "c", "d", &count], &[]);
        }
        assert_eq!(contents(&terminal), "a\nb\nc\nd\n2");
        terminal.screen_mut().set_scrollback(1);
        assert_eq!(contents(&terminal), "$ dwell\na\nb\nc\nd\n2");
    }

    #[test]
    fn narrower_terminal_that_wrapped_the_view_is_cleaned() {
        let (mut screen, mut terminal) = (Screen::new(Vec::new()), terminal());
        draw(&mut screen, &mut terminal, &["123456789012", "two"], &[]);
        // What a terminal of 10 columns shows that wraps lines when it is resized.
        let mut narrow = emulator(6, 10);
        narrow.process(b"$ dwell\r\n1234567890\r\n12\r\ntwo\r\n");
        draw(&mut screen, &mut narrow, &["12345", "two"], &[]);
        assert_eq!(contents(&narrow), "$ dwell\n12345\ntwo");
        draw(&mut screen, &mut terminal, &["wider again", "two"], &[]);
        assert_eq!(contents(&terminal), "$ dwell\nwider again\ntwo");
    }

    #[test]
    fn abandoned_view_stays_and_the_next_is_below() {
        let (mut screen, mut terminal) = (Screen::new(Vec::new()), terminal());
        draw(&mut screen, &mut terminal, &["one"], &[]);
        screen.abandon();
        terminal.process(b"$ fg\r\n");
        draw(&mut screen, &mut terminal, &["two"], &[]);
        assert_eq!(contents(&terminal), "$ dwell\none\n$ fg\ntwo");
    }

    #[test]
    fn styles_end_with_their_line_and_wide_characters_fit() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 2));
        buffer.set_string(0, 0, "ab", Style::new().fg(Color::Red));
        buffer.set_string(2, 0, "\u{8ddd}c", Style::new());
        buffer.set_string(0, 1, "d", Style::new().add_modifier(Modifier::BOLD));
        let mut screen = Screen::new(Vec::new());
        screen.draw(&buffer, 9, &[]).unwrap();
        let text = String::from_utf8(screen.to).unwrap();
        assert_eq!(text, "\r\x1b[0;31mab\x1b[0m\u{8ddd}c\x1b[K\r\n\x1b[0;1md\x1b[0m\x1b[K\r\n");
    }
}
