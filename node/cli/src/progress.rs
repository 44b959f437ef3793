//! Progress of work whose steps are counted: a bar on a terminal, now and then a line elsewhere, and
//! nothing at all for what is done within a second.

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is done sooner shows no bar.
const GRACE: Duration = Duration::from_millis(500);

/// On anything but a terminal, talk at most this often.
const PLAIN_LINE: Duration = Duration::from_secs(5);

/// Shown on standard error until it is dropped. Starts no thread.
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

    /// `done` of `of` steps are done; `message` says what comes.
    pub(crate) fn show(&self, done: usize, of: usize, message: &str) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !self.is_terminal {
            if state.last_line.elapsed() >= PLAIN_LINE {
                crate::say(&format!("{}: {done} of {of} steps done", self.what));
                state.last_line = Instant::now();
            }
            return;
        }
        self.bar.set_length(of as u64);
        self.bar.set_message(message.to_owned());
        self.bar.set_position(done as u64);
        if !state.is_shown && self.since.elapsed() >= GRACE {
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
