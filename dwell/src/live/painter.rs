//! The thread that draws a view.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dwell_units::Nanos;
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use rustix::process::{getpgrp, setpriority_process};
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use super::screen::Screen;
use super::{Theme, View};

/// Interval between frames.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of messages that wait for a terminal that does not accept them.
const MAX_MESSAGES: usize = 1_000;

/// Nice value of the drawing thread. Programs that measure take precedence.
const DRAW_NICE: i32 = 10;

/// Size of a terminal that reports none, such as a serial line.
const DEFAULT_SIZE: Size = Size { width: 80, height: 24 };

/// Draws snapshots of a view on standard error, at most ten times a second. Its methods never wait
/// for the terminal, except for [`Painter::end`].
#[derive(Debug)]
pub(crate) struct Painter<V> {
    shared: Arc<Shared<V>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<V> {
    queue: Mutex<Queue<V>>,
    changed: Condvar,
}

/// What the thread has not drawn yet.
#[derive(Debug)]
struct Queue<V> {
    view: Option<V>,
    messages: Vec<String>,
    is_over: bool,
}

impl<V> Shared<V> {
    fn queue(&self) -> MutexGuard<'_, Queue<V>> {
        // No code panics while it holds the lock.
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<V: View> Painter<V> {
    /// Starts to draw `view`.
    pub(crate) fn start(view: V, theme: Theme) -> io::Result<Self> {
        let queue = Queue { view: None, messages: Vec::new(), is_over: false };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        let continued = Arc::new(AtomicBool::new(false));
        dwell_node_cli::on_continue(&continued)?;
        let painted = Arc::clone(&shared);
        let paint = move || paint(&painted, view, theme, &continued);
        let thread = thread::Builder::new().name("live view".into()).spawn(paint)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Replaces the view in the next frame.
    pub(crate) fn show(&self, view: V) {
        self.shared.queue().view = Some(view);
    }

    /// Prints a line above the view in the next frame.
    pub(crate) fn say(&self, text: &str) {
        let mut queue = self.shared.queue();
        if queue.messages.len() < MAX_MESSAGES {
            queue.messages.push(text.to_owned());
        }
    }
}

impl<V> Painter<V> {
    /// Draws the last frame and leaves it on the terminal.
    pub(crate) fn end(&mut self) {
        self.shared.queue().is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed; the measurement is complete without it.
            let _ = thread.join();
        }
    }
}

impl<V> Drop for Painter<V> {
    fn drop(&mut self) {
        self.end();
    }
}

fn paint<V: View>(shared: &Shared<V>, mut view: V, theme: Theme, continued: &AtomicBool) {
    // On Linux this is the nice value of the thread.
    let _ = setpriority_process(None, DRAW_NICE);
    let began = Instant::now();
    let mut screen = Screen::new(io::stderr());
    let mut was_in_foreground = true;
    loop {
        let is_in_foreground = is_in_foreground();
        let (messages, is_over) = {
            let mut queue = shared.queue();
            view = queue.view.take().unwrap_or(view);
            // Messages of a background job wait until it is in the foreground again or ends.
            let prints = is_in_foreground || queue.is_over;
            let messages = if prints { std::mem::take(&mut queue.messages) } else { Vec::new() };
            (messages, queue.is_over)
        };
        // The shell wrote to the terminal while this process was stopped or in the background.
        let was_stopped = continued.swap(false, Ordering::Relaxed);
        if was_stopped || is_in_foreground && !was_in_foreground {
            screen.abandon();
        }
        was_in_foreground = is_in_foreground;
        if is_in_foreground || is_over {
            let size = size();
            let frame = frame(&view, elapsed(began), theme, size);
            // A closed terminal needs no frames.
            if screen.draw(&frame, size.width, &messages).is_err() || is_over {
                return;
            }
        }
        let queue = shared.queue();
        drop(shared.changed.wait_timeout_while(queue, REDRAW_INTERVAL, |queue| !queue.is_over));
    }
}

fn elapsed(began: Instant) -> Nanos {
    Nanos(i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX))
}

/// Draws a view for a terminal of this size. The last column stays empty, because terminals differ
/// in what follows a character there; the last line is the cursor's.
pub(super) fn frame<V: View>(view: &V, at: Nanos, theme: Theme, size: Size) -> Buffer {
    let available = Size {
        width: size.width.saturating_sub(1).max(1),
        height: size.height.saturating_sub(1).max(1),
    };
    let height = view.height(available).clamp(1, available.height);
    let mut buffer = Buffer::empty(Rect::new(0, 0, available.width, height));
    view.render(at, theme, buffer.area, &mut buffer);
    buffer
}

fn size() -> Size {
    match tcgetwinsize(io::stderr()) {
        Ok(found) if found.ws_col > 0 && found.ws_row > 0 => {
            Size { width: found.ws_col, height: found.ws_row }
        }
        _ => DEFAULT_SIZE,
    }
}

/// Whether this process may draw: it is in the foreground, or standard error is not its controlling
/// terminal.
fn is_in_foreground() -> bool {
    tcgetpgrp(io::stderr()).map_or(true, |group| group == getpgrp())
}
