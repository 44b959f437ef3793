//! Exchanges with the clock of one node. They bypass the queue of its other messages, so that the time
//! of an answer is read at once and the other messages keep their order.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as Deadline};

use dwell_host::ClockState;
use dwell_protocol::{Event, Request};
use dwell_stats::{ClockExchange, ClockReading};
use dwell_units::{Instant, Realtime};

use crate::{ClockDomain, local_clock};

/// Number of exchanges of a burst.
const BURST_EXCHANGES: usize = 16;

/// Maximum duration of a burst. A distant node completes fewer exchanges.
const BURST_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for a node to report the state of its clock: its programs have a second.
const STATE_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Maximum number of unanswered requests before no more are sent, so that they never fill the pipe to a
/// connection that hangs.
const MAX_UNANSWERED: usize = 12;

/// Maximum number of exchanges kept between bursts, enough for an hour. Beyond that, every other
/// one is dropped.
const MAX_EXCHANGES: usize = 720;

/// Maximum length of the id of a kernel.
const MAX_BOOT_ID_LEN: usize = 64;

/// Start or end of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialEdge {
    /// Before the first job.
    Start,
    /// After the last job.
    End,
}

/// Exchanges with the clock of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClockReadings {
    /// Exchanges since the burst before.
    pub between: Vec<ClockExchange>,
    /// Exchanges of a burst.
    pub burst: Vec<ClockExchange>,
    /// State of the clock at the start of a trial; `None` at the end, or if unknown.
    pub state: Option<ClockState>,
}

/// The clock of a connected node, shared by the threads that send to it and receive from it.
#[derive(Debug, Default)]
pub(crate) struct NodeClock {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Number of the last request.
    last: u32,
    /// Times of unanswered requests.
    sent: BTreeMap<u32, Instant<Realtime>>,
    exchanges: Vec<ClockExchange>,
    /// Number of the request whose state is awaited.
    state_request: Option<u32>,
    state: Option<ClockState>,
    boot_id: Option<String>,
    in_burst: bool,
    has_ended: bool,
}

impl NodeClock {
    /// Returns the request that keeps an idle node alive; `None` if none must be sent now: during a
    /// burst, or if too many are unanswered.
    pub(crate) fn keepalive(&self) -> Option<Request> {
        let mut inner = self.lock();
        (!inner.in_burst && inner.sent.len() < MAX_UNANSWERED).then(|| inner.request())
    }

    /// Handles an event of the node. Returns events that do not concern its clock, and `Hello`.
    pub(crate) fn take(&self, event: Event) -> Option<Event> {
        match event {
            Event::Clock { id, realtime_ns, monotonic_ns, raw_ns, width_ns } => {
                let received = local_clock::reading();
                let remote = ClockReading::new(realtime_ns, monotonic_ns, raw_ns, width_ns);
                let mut inner = self.lock();
                let sent = inner.sent.remove(&id);
                if let (Some(sent), Some(remote), Some(received)) = (sent, remote, received) {
                    inner.push(ClockExchange { sent, remote, received });
                }
                self.changed.notify_all();
                None
            }
            Event::ClockState { id, state } => {
                let mut inner = self.lock();
                // An answer that is late must not describe a later trial.
                if inner.state_request == Some(id) {
                    inner.state = Some(state);
                }
                self.changed.notify_all();
                None
            }
            Event::Hello { ref boot_id, .. } => {
                let is_valid = |id: &&String| !id.is_empty() && id.len() <= MAX_BOOT_ID_LEN;
                self.lock().boot_id = boot_id.as_ref().filter(is_valid).cloned();
                Some(event)
            }
            event => Some(event),
        }
    }

    /// Records that the node has ended.
    pub(crate) fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Returns the clock of the node; `None` if its kernel is unknown.
    pub(crate) fn domain(&self) -> Option<ClockDomain> {
        let inner = self.lock();
        let id = inner.boot_id.as_deref()?;
        let is_own = local_clock::boot_id().is_some_and(|own| own == id);
        Some(if is_own { ClockDomain::controller() } else { ClockDomain::of_kernel(id) })
    }

    /// Exchanges requests with the node, one after the other, and returns all exchanges since the last
    /// burst. At the start of a trial, reads the state of the clock first.
    pub(crate) fn measure(
        &self,
        edge: TrialEdge,
        send: impl Fn(&Request) -> io::Result<()>,
    ) -> ClockReadings {
        let mut inner = self.lock();
        inner.in_burst = true;
        inner.state = None;
        if edge == TrialEdge::Start {
            inner.last += 1;
            inner.state_request = Some(inner.last);
            let request = Request::ClockState { id: inner.last };
            drop(inner);
            let sent = send(&request).is_ok();
            let deadline = Deadline::now() + STATE_TIMEOUT;
            inner = self.wait(deadline, |inner| !sent || inner.state.is_some());
            inner.state_request = None;
        }
        let between = std::mem::take(&mut inner.exchanges);
        let deadline = Deadline::now() + BURST_TIMEOUT;
        for _ in 0..BURST_EXCHANGES {
            let before = inner.exchanges.len();
            let request = inner.request();
            drop(inner);
            let sent = send(&request).is_ok();
            inner = self.wait(deadline, |inner| !sent || inner.exchanges.len() > before);
            if inner.exchanges.len() == before {
                break;
            }
        }
        inner.in_burst = false;
        let burst = std::mem::take(&mut inner.exchanges);
        ClockReadings { between, burst, state: inner.state.take() }
    }

    /// Waits until the condition holds, the node has ended or the deadline has passed.
    fn wait(&self, deadline: Deadline, done: impl Fn(&Inner) -> bool) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Deadline::now());
            if inner.has_ended || left.is_zero() || done(&inner) {
                return inner;
            }
            let waited = self.changed.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Returns a request that is sent now.
    fn request(&mut self) -> Request {
        self.last += 1;
        self.sent.insert(self.last, local_clock::realtime());
        Request::Clock { id: self.last }
    }

    fn push(&mut self, exchange: ClockExchange) {
        if self.exchanges.len() >= MAX_EXCHANGES {
            let mut keep = false;
            self.exchanges.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.exchanges.push(exchange);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Lead of the node's clock.
    const LEAD: i64 = 3_600_000_000_000;

    fn answer(request: &Request) -> Event {
        let at = local_clock::realtime().as_nanos();
        match *request {
            Request::ClockState { id } => Event::ClockState { id, state: ClockState::default() },
            Request::Clock { id } => Event::Clock {
                id,
                realtime_ns: at + LEAD,
                monotonic_ns: at - 1,
                raw_ns: at - 2,
                width_ns: 30,
            },
            _ => panic!("{request:?}"),
        }
    }

    /// Answers requests in another thread, like the thread that reads from a node.
    fn measure(clock: &NodeClock, edge: TrialEdge, answers: usize) -> ClockReadings {
        let (sender, receiver) = mpsc::channel::<Request>();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut answered = 0;
                for request in receiver {
                    if answered == answers {
                        clock.end();
                        continue;
                    }
                    answered += 1;
                    assert!(clock.take(answer(&request)).is_none());
                }
            });
            let send = |request: &Request| sender.send(request.clone()).map_err(io::Error::other);
            let readings = clock.measure(edge, send);
            drop(sender);
            readings
        })
    }

    #[test]
    fn burst_bounds_the_offset_and_keeps_the_exchanges_before_it() {
        let clock = NodeClock::default();
        let start = measure(&clock, TrialEdge::Start, usize::MAX);
        assert_eq!(start.burst.len(), BURST_EXCHANGES);
        assert!(start.between.is_empty() && start.state.is_some());
        let kept = clock.keepalive().unwrap();
        clock.take(answer(&kept));
        let end = measure(&clock, TrialEdge::End, usize::MAX);
        assert_eq!((end.between.len(), end.burst.len()), (1, BURST_EXCHANGES));
        assert_eq!(end.state, None, "read at the start only");
        for exchange in start.burst.iter().chain(&end.between).chain(&end.burst) {
            let remote = exchange.remote.real.as_nanos() - LEAD;
            assert!(
                (exchange.sent.as_nanos()..=exchange.received.real.as_nanos()).contains(&remote)
            );
        }
    }

    #[test]
    fn burst_ends_with_its_node() {
        let clock = NodeClock::default();
        let start = Deadline::now();
        assert_eq!(measure(&clock, TrialEdge::End, 3).burst.len(), 3);
        assert!(start.elapsed() < BURST_TIMEOUT);
    }

    #[test]
    fn late_state_of_a_clock_does_not_describe_a_later_trial() {
        let clock = NodeClock::default();
        let late = answer(&Request::ClockState { id: 1 });
        let send = |request: &Request| {
            match request {
                // An answer to another request arrives instead.
                Request::ClockState { .. } => assert!(clock.take(late.clone()).is_none()),
                _ => assert!(clock.take(answer(request)).is_none()),
            }
            Ok(())
        };
        clock.lock().last = 1;
        assert_eq!(clock.measure(TrialEdge::Start, send).state, None);
        assert!(clock.take(answer(&Request::ClockState { id: 2 })).is_none());
        assert_eq!(clock.lock().state, None);
        assert_eq!(
            measure(&clock, TrialEdge::Start, usize::MAX).state,
            Some(ClockState::default())
        );
    }

    #[test]
    fn keepalive_pauses_while_requests_are_unanswered() {
        let clock = NodeClock::default();
        let requests: Vec<_> = (0..MAX_UNANSWERED).filter_map(|_| clock.keepalive()).collect();
        assert_eq!(requests.len(), MAX_UNANSWERED);
        assert_eq!(clock.keepalive(), None);
        clock.take(answer(&requests[3]));
        assert!(clock.keepalive().is_some());
    }

    #[test]
    fn absurd_or_unexpected_answer_is_no_exchange() {
        let clock = NodeClock::default();
        let Some(Request::Clock { id }) = clock.keepalive() else { panic!("expected a request") };
        for (id, realtime_ns) in [(id, i64::MIN), (id, 1), (id + 7, 1), (u32::MAX, i64::MAX)] {
            let event = Event::Clock { id, realtime_ns, monotonic_ns: 0, raw_ns: 0, width_ns: 0 };
            assert!(clock.take(event).is_none());
        }
        assert!(clock.lock().exchanges.is_empty());
    }

    #[test]
    fn exchanges_between_bursts_are_thinned_out() {
        let clock = NodeClock::default();
        for _ in 0..3 * MAX_EXCHANGES {
            clock.take(answer(&clock.keepalive().unwrap()));
        }
        let kept = clock.lock().exchanges.len();
        assert!((MAX_EXCHANGES / 2..=MAX_EXCHANGES).contains(&kept), "{kept}");
    }

    #[test]
    fn node_of_the_own_kernel_has_the_clock_of_the_controller() {
        let hello = |boot_id: Option<&str>| Event::Hello {
            version: dwell_protocol::VERSION,
            dwell: String::new(),
            node: String::new(),
            jobs: Vec::new(),
            boot_id: boot_id.map(str::to_owned),
        };
        let domain = |boot_id: Option<&str>| {
            let clock = NodeClock::default();
            assert!(clock.take(hello(boot_id)).is_some());
            clock.domain()
        };
        let own = local_clock::boot_id().unwrap();
        assert_eq!(domain(Some(&own)), Some(ClockDomain::controller()));
        assert_eq!(domain(Some("an-id")), Some(ClockDomain::of_kernel("an-id")));
        assert_eq!((domain(None), domain(Some(""))), (None, None));
    }
}
