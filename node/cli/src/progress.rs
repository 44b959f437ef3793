//! Progress of work with a known number of steps: a bar on a terminal, otherwise an occasional
//! line. Nothing for work that takes less than [`SHOW_DELAY`].

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows no bar.
const SHOW_DELAY: Duration = Duration::from_millis(500);

/// Minimum interval between progress lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Progress display on standard error, removed when dropped. Starts no thread.
pub(crate) struct Progress {
    what: &'static str,
    bar: ProgressBar,
    is_terminal: bool,
    since: Instant,
    state: Mutex<State>,
}

struct State {
    is_shown: bool,
    last_line: Instant,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        let template = "{prefix} {bar:24} {pos}/{len}  {eta} left  {msg}";
        let style = ProgressStyle::with_template(template).expect("the template is constant");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let since = Instant::now();
        Self {
            what,
            bar: bar.with_style(style).with_prefix(what),
            is_terminal: io::stderr().is_terminal(),
            since,
            state: Mutex::new(State { is_shown: false, last_line: since }),
        }
    }

    /// Shows that `done` of `of` steps are complete and that `message` is next.
    pub(crate) fn show(&self, done: usize, of: usize, message: &str) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !self.is_terminal {
            if state.last_line.elapsed() >= LINE_INTERVAL {
                crate::say(&format!("{}: {done} of {of} steps done", self.what));
                state.last_line = Instant::now();
            }
            return;
        }
        self.bar.set_length(of as u64);
        self.bar.set_message(message.to_owned());
        self.bar.set_position(done as u64);
        if !state.is_shown && self.since.elapsed() >= SHOW_DELAY {
            state.is_shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.tick();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
