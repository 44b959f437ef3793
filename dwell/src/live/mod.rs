//! Live views: a few lines below the earlier output that redraw in place while a measurement runs.
//!
//! A view ([`View`]) is plain data with a pure function that draws it into a ratatui buffer of any
//! size. [`Painter`] draws snapshots of it on its own thread, so a slow terminal delays neither the
//! timing thread nor the recording thread. [`screen`] turns a buffer into bytes for the terminal.
//!
//! The views change no terminal modes: no raw mode, no alternate screen, no hidden cursor, no
//! disabled echo. Between frames the cursor is on the empty line below the view. Every ending of the
//! process, SIGKILL included, therefore leaves a usable terminal, and ^C remains a signal.

mod painter;
mod ping;
mod row;
mod run;
mod screen;
mod support;
mod timeline;

#[cfg(test)]
mod golden;

use dwell_units::Nanos;
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};

pub(crate) use painter::Painter;
pub(crate) use ping::{add_flag, is_requested, ping};
pub(crate) use run::RunView;
pub(crate) use support::{Support, Theme};

/// State of a measurement that is shown in place.
pub(crate) trait View: Clone + Send + 'static {
    /// Number of lines to draw on `available` space: at least 1, at most its height.
    fn height(&self, available: Size) -> u16;

    /// Draws the state `at` this time since the start of the view into `area`.
    fn render(&self, at: Nanos, theme: Theme, area: Rect, buffer: &mut Buffer);
}
