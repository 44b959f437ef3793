//! The pinger in virtual time, against a faulty link and responder.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;
use crate::protocol::Reply;

/// CLOCK_REALTIME minus CLOCK_MONOTONIC.
const OFFSET: i64 = 1_700_000_000_000_000_000;
const MS: i64 = 1_000_000;

/// A protocol whose messages are the low 32 bits of the id.
#[derive(Debug)]
struct Plain;

impl Protocol for Plain {
    fn capacity(&self) -> usize {
        4
    }

    fn write(&mut self, id: u64, _now: Instant<Realtime>, message: &mut [u8]) -> usize {
        message.copy_from_slice(&(id as u32).to_be_bytes());
        4
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        let id = message.try_into().map_err(|_| Reject::Malformed)?;
        Ok(Reply::plain(WireId::low(u32::from_be_bytes(id).into(), 32)))
    }
}

/// Maps a probe to the delays of its replies.
type ReplyDelays = fn(id: i64, sent: i64) -> Vec<i64>;

struct Simulation {
    now: i64,
    pinger: Pinger<Plain>,
    replies: BinaryHeap<Reverse<(i64, u64)>>,
    samples: Vec<Sample>,
    departures: Vec<(i64, i64)>,
}

fn open(count: u64, interval: i64, timeout: i64) -> Config {
    Config {
        departures: ProbeSchedule::Open { interval: Nanos(interval) },
        count: Some(count),
        duration: None,
        timeout: Nanos(timeout),
        warm_up: 0,
        warm_up_interval: Nanos(MS),
    }
}

fn closed(count: u64, pause: i64, timeout: i64) -> Config {
    let departures = ProbeSchedule::Closed { pause: Nanos(pause), spacing: Nanos::ZERO };
    Config { departures, ..open(count, 0, timeout) }
}

impl Simulation {
    fn new(config: Config) -> Self {
        Self {
            now: 0,
            pinger: Pinger::new(Plain, config, Instant::from_nanos(0)),
            replies: BinaryHeap::new(),
            samples: Vec::new(),
            departures: Vec::new(),
        }
    }

    fn mono(&self) -> Instant<Monotonic> {
        Instant::from_nanos(self.now)
    }

    fn real(&self) -> Instant<Realtime> {
        Instant::from_nanos(OFFSET + self.now)
    }

    /// One iteration of the caller's loop at the current time.
    fn iterate(&mut self, reply_delays: ReplyDelays) {
        let (mono, real) = (self.mono(), self.real());
        let out = &mut |sample| self.samples.push(sample);
        while let Some(Reverse((_, id))) = self.replies.peek().filter(|r| r.0.0 <= self.now) {
            let rx = RxStamps { hw: None, driver: None, kernel: None, app: real };
            let message = (*id as u32).to_be_bytes();
            self.pinger.receive(&message, 0, rx, mono, out).expect("a reply of this run");
            self.replies.pop();
        }
        self.pinger.expire(mono, out);
        if let Some(token) = self.pinger.transmit(mono, real, out) {
            let id = token.id();
            self.departures.push((id as i64, self.now));
            for delay in reply_delays(id as i64, self.now) {
                self.replies.push(Reverse((self.now + delay, id)));
            }
            self.pinger.sent(token, real, None);
        }
    }

    /// Runs until the pinger waits for nothing, then delivers the remaining replies.
    fn run(mut self, reply_delays: ReplyDelays) -> Self {
        for _ in 0..1_000_000 {
            self.iterate(reply_delays);
            let Some(wake) = self.pinger.wake() else { break };
            let arrival = self.replies.peek().map_or(i64::MAX, |r| r.0.0);
            self.now = self.now.max(wake.as_nanos().min(arrival));
        }
        assert_eq!(self.pinger.wake(), None, "the run has ended");
        while let Some(Reverse((at, _))) = self.replies.peek() {
            self.now = *at;
            self.iterate(reply_delays);
        }
        self
    }

    fn states(&self, state: State) -> Vec<u64> {
        self.samples.iter().filter(|s| s.state == state).map(|s| s.id).collect()
    }
}

fn rtt(sample: &Sample) -> i64 {
    (sample.rx.expect("a reply").app - sample.tx.app).0
}

#[test]
fn constant_delay_is_exact_and_schedule_is_kept() {
    let simulation = Simulation::new(open(100, 10 * MS, 1_000 * MS)).run(|_, _| vec![3 * MS]);
    assert_eq!(simulation.states(State::Received), (0..100).collect::<Vec<_>>());
    assert!(simulation.samples.iter().all(|s| rtt(s) == 3 * MS));
    assert!(simulation.departures.iter().all(|(id, at)| *at == id * 10 * MS));
}

#[test]
fn lost_probes_have_rows() {
    let reply_delays: ReplyDelays = |id, _| if id % 3 == 0 { vec![] } else { vec![MS] };
    let simulation = Simulation::new(open(30, 10 * MS, 50 * MS)).run(reply_delays);
    assert_eq!(simulation.samples.len(), 30);
    assert_eq!(simulation.states(State::Lost), (0..30).step_by(3).collect::<Vec<_>>());
    let counts = simulation.pinger.counts();
    assert_eq!((counts.sent, counts.received, counts.lost), (30, 20, 10));
}

#[test]
fn kernel_timestamp_decides_whether_a_reply_is_late() {
    for (kernel, state) in
        [(Some(80), State::Received), (Some(101), State::Late), (None, State::Late)]
    {
        let mut pinger = Pinger::new(Plain, open(1, MS, 100 * MS), Instant::from_nanos(0));
        let (mono, real) = (Instant::from_nanos(0), Instant::from_nanos(OFFSET));
        let token = pinger.transmit(mono, real, &mut |_| ()).unwrap();
        pinger.sent(token, real, None);
        // The program stalls for three time-outs.
        let (mono, real) = (mono + Nanos(300 * MS), real + Nanos(300 * MS));
        let kernel = kernel.map(|ms: i64| Instant::from_nanos(OFFSET + ms * MS));
        let mut states = Vec::new();
        assert!(pinger.is_timing_out(mono));
        let rx = RxStamps { hw: None, driver: None, kernel, app: real };
        pinger.receive(&[0; 4], 0, rx, mono, &mut |sample| states.push(sample.state)).unwrap();
        pinger.expire(mono, &mut |_| panic!("the probe is already resolved"));
        assert_eq!(states.last(), Some(&state));
        assert_eq!(states.contains(&State::Lost), state == State::Late);
    }
}

#[test]
fn late_reply_does_not_affect_later_probes() {
    // The master of Roedlach/Vock takes the late reply of cycle 5 for that of cycle 6, and so on.
    let reply_delays: ReplyDelays = |id, _| if id == 5 { vec![120 * MS] } else { vec![MS] };
    for config in [closed(50, 0, 100 * MS), open(50, 10 * MS, 100 * MS)] {
        // In the closed loop the other 44 cycles take 44 ms, so the late reply arrives between
        // them.
        let simulation = Simulation::new(config).run(reply_delays);
        assert_eq!(simulation.states(State::Late), [5]);
        assert_eq!(simulation.states(State::Lost), [5], "the time-out is reported when it expires");
        let received = simulation.states(State::Received);
        assert_eq!(received.len(), 49);
        assert!(
            simulation.samples.iter().filter(|s| s.state == State::Received).all(|s| rtt(s) == MS),
            "no later cycle is matched to the late reply"
        );
        let counts = simulation.pinger.counts();
        assert_eq!((counts.sent, counts.received, counts.lost, counts.late), (50, 49, 0, 1));
    }
}

#[test]
fn duplicates_do_not_count_as_received() {
    let simulation =
        Simulation::new(open(10, 10 * MS, 50 * MS)).run(|_, _| vec![MS, 2 * MS, 2 * MS]);
    let counts = simulation.pinger.counts();
    assert_eq!((counts.sent, counts.received, counts.duplicate), (10, 10, 20));
    assert_eq!(simulation.states(State::Duplicate).len(), 20);
}

/// Runs with only the wake-ups that the pinger requests; returns the end time and the counters.
fn end_of_run(config: Config, reply_delays: ReplyDelays) -> (i64, Counts) {
    let mut simulation = Simulation::new(config);
    while let Some(wake) = simulation.pinger.wake() {
        let arrival = simulation.replies.peek().map_or(i64::MAX, |r| r.0.0);
        simulation.now = simulation.now.max(wake.as_nanos().min(arrival));
        simulation.iterate(reply_delays);
    }
    (simulation.now, simulation.pinger.counts())
}

#[test]
fn wait_for_duplicates_is_a_few_round_trips() {
    let twice: ReplyDelays = |_, _| vec![2 * MS, 9 * MS];
    for config in [open(10, 10 * MS, 50 * MS), closed(10, 0, 50 * MS)] {
        let (end, counts) = end_of_run(config, twice);
        assert_eq!((counts.received, counts.duplicate), (10, 10));
        let last = counts.sent as i64 - 1;
        let departure = match config.departures {
            ProbeSchedule::Open { interval } => last * interval.0,
            // No wait for duplicates between two cycles.
            ProbeSchedule::Closed { .. } => last * 2 * MS,
        };
        assert_eq!(end, departure + 2 * MS + 4 * 2 * MS);
    }
}

#[test]
fn wait_for_duplicates_is_bounded() {
    // The wait after the last reply is between 1 and 50 ms, and at most the time-out.
    let cases = [
        (1_000 * MS, MS / 10, MS),
        (1_000 * MS, 5 * MS, 20 * MS),
        (1_000 * MS, 300 * MS, 50 * MS),
        (16 * MS, 15 * MS, 16 * MS),
    ];
    std::thread_local!(static RTT: std::cell::Cell<i64> = const { std::cell::Cell::new(0) });
    for (timeout, rtt, added) in cases {
        RTT.set(rtt);
        let (end, counts) = end_of_run(open(1, 10 * MS, timeout), |_, _| vec![RTT.get()]);
        assert_eq!((counts.received, end), (1, rtt + added));
    }
    // No wait after a time-out or an interrupt.
    let (end, counts) = end_of_run(open(1, 10 * MS, 70 * MS), |_, _| vec![]);
    assert_eq!((counts.lost, end), (1, 70 * MS));
    let mut simulation = Simulation::new(open(2, 10 * MS, 1_000 * MS));
    simulation.iterate(|_, _| vec![MS]);
    simulation.pinger.stop();
    simulation.now = MS;
    simulation.iterate(|_, _| vec![]);
    assert_eq!(simulation.pinger.wake(), None);
}

#[test]
fn no_probe_is_decided_after_its_time_was_settled() {
    let reply_delays: ReplyDelays = |id, _| match id % 7 {
        0 => vec![],
        1 => vec![80 * MS],
        2 => vec![45 * MS, 46 * MS],
        _ => vec![MS],
    };
    let mut simulation = Simulation::new(open(200, 10 * MS, 50 * MS));
    let (mut settled, mut seen) = (Instant::EPOCH, 0);
    while let Some(wake) = simulation.pinger.wake() {
        let arrival = simulation.replies.peek().map_or(i64::MAX, |r| r.0.0);
        simulation.now = simulation.now.max(wake.as_nanos().min(arrival));
        simulation.iterate(reply_delays);
        for sample in &simulation.samples[seen..] {
            let is_first = matches!(sample.state, State::Received | State::Lost);
            assert!(!is_first || sample.intended >= settled, "{sample:?}");
        }
        seen = simulation.samples.len();
        assert!(simulation.pinger.settled() >= settled);
        settled = simulation.pinger.settled();
        // The probes of the last time-out, and no older ones, may be undecided.
        assert!(settled.as_nanos() >= simulation.now - 50 * MS);
    }
    assert_eq!(settled.as_nanos(), i64::MAX);
}

#[test]
fn stall_causes_no_burst_if_overdue_probes_are_skipped() {
    let mut simulation = Simulation::new(open(1_000, 10 * MS, 50 * MS));
    simulation.iterate(|_, _| vec![MS]);
    simulation.now = 10 * MS;
    assert_eq!(simulation.pinger.skip_overdue(simulation.mono(), Nanos(100 * MS)), 0);
    simulation.iterate(|_, _| vec![MS]);
    // A stall of an hour, in the middle of an interval.
    simulation.now = 3_600_000 * MS + 3 * MS;
    assert_eq!(simulation.pinger.skip_overdue(simulation.mono(), Nanos(100 * MS)), 359_998);
    for _ in 0..5 {
        simulation.iterate(|_, _| vec![MS]);
    }
    assert_eq!(simulation.departures, [(0, 0), (1, 10 * MS), (2, simulation.now)]);
    let due = simulation.pinger.departure().unwrap().as_nanos();
    assert_eq!(due, 3_600_010 * MS, "the phase stays");
}

#[test]
fn phase_of_an_earlier_run_is_kept_after_the_warm_up() {
    for phase in [-40 * MS, 3 * MS, 100_003 * MS] {
        let mut simulation = Simulation::new(Config { warm_up: 4, ..open(3, 10 * MS, 50 * MS) });
        simulation.pinger.keep_phase(Instant::from_nanos(phase));
        let simulation = simulation.run(|_, _| vec![MS / 2]);
        let counted = simulation.departures.iter().filter(|(id, _)| *id >= 0);
        let due: Vec<_> = counted.map(|(_, at)| at.rem_euclid(10 * MS)).collect();
        assert_eq!(due, [phase.rem_euclid(10 * MS); 3]);
        assert_eq!(simulation.departures.len(), 7);
        assert!(simulation.departures[6].1 < 50 * MS, "{:?}", simulation.departures);
    }
}

#[test]
fn skipped_departures_keep_the_phase_and_the_ids() {
    let mut simulation = Simulation::new(Config { warm_up: 1, ..open(2, 10 * MS, 50 * MS) });
    simulation.pinger.keep_phase(Instant::from_nanos(3 * MS));
    simulation.pinger.skip_departure();
    assert_eq!(simulation.pinger.departure().unwrap().as_nanos(), 10 * MS);
    simulation.now = 10 * MS;
    simulation.iterate(|_, _| vec![MS]);
    simulation.pinger.skip_departure();
    let simulation = simulation.run(|_, _| vec![MS]);
    assert_eq!(simulation.departures, [(-1, 10 * MS), (0, 23 * MS), (1, 33 * MS)]);
}

#[test]
fn overtaken_reply_is_reordered_and_received() {
    let reply_delays: ReplyDelays = |id, _| if id == 3 { vec![15 * MS] } else { vec![MS] };
    let simulation = Simulation::new(open(10, 10 * MS, 50 * MS)).run(reply_delays);
    let reordered: Vec<_> =
        simulation.samples.iter().filter(|s| s.reordered).map(|s| s.id).collect();
    assert_eq!(reordered, [3]);
    assert_eq!(simulation.pinger.counts().received, 10);
}

#[test]
fn stalled_responder_does_not_stop_an_open_loop() {
    // All replies between 100 and 300 ms are held until 300 ms.
    let reply_delays: ReplyDelays = |_, sent| {
        let stalled = (100 * MS..300 * MS).contains(&sent);
        vec![if stalled { 300 * MS - sent } else { MS }]
    };
    let simulation = Simulation::new(open(50, 10 * MS, 1_000 * MS)).run(reply_delays);
    assert_eq!(simulation.pinger.counts().received, 50);
    assert!(simulation.departures.iter().all(|(id, at)| *at == id * 10 * MS));
    let worst = simulation.samples.iter().map(rtt).max();
    assert_eq!(worst, Some(200 * MS), "the stall shows in the delays");
}

#[test]
fn closed_loop_sends_after_reply_and_pause() {
    let simulation = Simulation::new(closed(4, 7 * MS, 100 * MS)).run(|_, _| vec![2 * MS]);
    let at: Vec<_> = simulation.departures.iter().map(|(_, at)| *at).collect();
    assert_eq!(at, [0, 9 * MS, 18 * MS, 27 * MS]);
}

#[test]
fn closed_loop_continues_after_a_time_out() {
    let simulation = Simulation::new(closed(3, 0, 100 * MS))
        .run(|id, _| if id == 1 { vec![] } else { vec![MS] });
    let at: Vec<_> = simulation.departures.iter().map(|(_, at)| *at).collect();
    assert_eq!(at, [0, MS, 101 * MS]);
}

#[test]
fn run_up_uses_the_measured_rate() {
    let gaps = |config: Config| -> Vec<i64> {
        let simulation = Simulation::new(config).run(|_, _| vec![MS / 10]);
        simulation.departures.windows(2).map(|pair| pair[1].1 - pair[0].1).collect()
    };
    let warm = |config| Config { warm_up: 8, ..config };
    // Four gaps of the warm-up interval, then the measured rate: 200 us apart, or after each reply.
    let (slow, open_pace, closed_pace) = (MS, MS / 5, MS / 10);
    let expected = |pace| [vec![slow; 4], vec![pace; 8]].concat();
    assert_eq!(gaps(warm(open(5, open_pace, 50 * MS))), expected(open_pace));
    assert_eq!(gaps(warm(closed(5, 0, 50 * MS))), expected(closed_pace));
    // A rate lower than the warm-up's does not lengthen the warm-up.
    let slower = gaps(warm(open(3, 7 * MS, 50 * MS)));
    assert_eq!(slower, [vec![slow; 8], vec![7 * MS; 2]].concat());
}

#[test]
fn warm_up_probes_are_not_counted() {
    let config = Config { warm_up: 5, ..open(10, 10 * MS, 50 * MS) };
    let simulation = Simulation::new(config).run(|id, _| if id == -2 { vec![] } else { vec![MS] });
    assert_eq!(simulation.departures.len(), 15);
    assert_eq!(simulation.departures[0].0, -5);
    assert_eq!(simulation.samples.len(), 10);
    let counts = simulation.pinger.counts();
    assert_eq!((counts.sent, counts.received, counts.lost), (10, 10, 0));
    assert_eq!((counts.warm_up_sent, counts.warm_up_received), (5, 4));
}

#[test]
fn reply_to_unsent_probe_is_rejected() {
    let mut simulation = Simulation::new(open(3, 10 * MS, 50 * MS));
    simulation.iterate(|_, _| vec![]);
    let rx = RxStamps { hw: None, driver: None, kernel: None, app: simulation.real() };
    let now = simulation.mono();
    for (message, reject) in
        [(&[0, 0, 0, 9][..], Reject::Unknown), (&[1, 2, 3][..], Reject::Malformed)]
    {
        let result = simulation.pinger.receive(message, 0, rx, now, &mut |_| panic!("no sample"));
        assert_eq!(result, Err(reject));
    }
    assert_eq!(simulation.pinger.counts().rejected.unknown, 1);
    assert_eq!(simulation.pinger.counts().rejected.malformed, 1);
    assert_eq!(simulation.pinger.counts().received, 0);
}

#[test]
fn realtime_clock_step_moves_no_departure_or_time_out() {
    // The timestamps jump by an hour; schedule and time-outs use CLOCK_MONOTONIC.
    let mut simulation = Simulation::new(open(5, 10 * MS, 50 * MS));
    let mut samples = Vec::new();
    for iterate in 0..5_i64 {
        let step = if iterate >= 2 { 3_600_000 * MS } else { 0 };
        let now = Instant::from_nanos(iterate * 10 * MS);
        let stamp = |after: i64| Instant::from_nanos(OFFSET + step + iterate * 10 * MS + after);
        let token =
            simulation.pinger.transmit(now, stamp(0), &mut |_| {}).expect("due by the schedule");
        let message = (token.id() as u32).to_be_bytes();
        simulation.pinger.sent(token, stamp(0), None);
        let rx = RxStamps { hw: None, driver: None, kernel: None, app: stamp(MS) };
        let later = now + Nanos(MS);
        simulation.pinger.receive(&message, 0, rx, later, &mut |s| samples.push(s)).unwrap();
    }
    assert_eq!(samples.len(), 5);
    assert!(samples.iter().all(|s| s.state == State::Received));
    let linger_end = simulation.pinger.wake().expect("waits for duplicates");
    simulation.pinger.expire(linger_end, &mut |_| panic!("no sample"));
    assert_eq!(simulation.pinger.wake(), None);
}

#[test]
fn reply_waits_for_the_stamp_of_its_probe() {
    let mut simulation = Simulation::new(open(2, 10 * MS, 50 * MS));
    simulation.pinger.await_stamp(Some(TxPoint::Kernel));
    let mut samples = Vec::new();
    let (now, real) = (simulation.mono(), simulation.real());
    let token = simulation.pinger.transmit(now, real, &mut |_| {}).unwrap();
    simulation.pinger.sent(token, real, Some(70));
    let rx = RxStamps { hw: None, driver: None, kernel: None, app: real + Nanos(MS) };
    simulation
        .pinger
        .receive(&[0, 0, 0, 0], 0, rx, now + Nanos(MS), &mut |s| samples.push(s))
        .unwrap();
    assert_eq!(samples, [], "reported only with its timestamp");
    simulation.pinger.tx_stamp(71, TxStamp::Kernel(real), &mut |s| samples.push(s));
    assert_eq!(samples, [], "the timestamp of another packet is ignored");
    simulation.pinger.tx_stamp(70, TxStamp::Kernel(real + Nanos(9)), &mut |s| samples.push(s));
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0].tx.kernel, Some(real + Nanos(9)));
    assert_eq!(simulation.pinger.counts().tx_stamp_missing, 0);
}

#[test]
fn software_and_card_stamps_of_one_probe_are_one_sample() {
    for point in [None, Some(TxPoint::Kernel), Some(TxPoint::Hw)] {
        let mut simulation = Simulation::new(open(1, 10 * MS, 50 * MS));
        simulation.pinger.await_stamp(point);
        let mut samples = Vec::new();
        let (now, real) = (simulation.mono(), simulation.real());
        let token = simulation.pinger.transmit(now, real, &mut |_| {}).unwrap();
        simulation.pinger.sent(token, real, Some(3));
        let rx = RxStamps { hw: None, driver: None, kernel: None, app: real + Nanos(MS) };
        let stamps = [TxStamp::Kernel(real + Nanos(9)), TxStamp::Hw(Instant::from_nanos(5))];
        // The driver takes the software timestamp first; the card's follows with the same key.
        let before = if point == Some(TxPoint::Hw) { 1 } else { 2 };
        for stamp in &stamps[..before] {
            simulation.pinger.tx_stamp(3, *stamp, &mut |s| samples.push(s));
        }
        simulation
            .pinger
            .receive(&[0, 0, 0, 0], 0, rx, now + Nanos(MS), &mut |s| samples.push(s))
            .unwrap();
        for stamp in &stamps[before..] {
            assert_eq!((samples.len(), simulation.pinger.awaiting_stamps()), (0, 1));
            simulation.pinger.tx_stamp(3, *stamp, &mut |s| samples.push(s));
        }
        assert_eq!(samples.len(), 1, "{point:?}");
        let tx = samples[0].tx;
        assert_eq!((tx.kernel, tx.hw), (Some(real + Nanos(9)), Some(Instant::from_nanos(5))));
        assert_eq!(simulation.pinger.awaiting_stamps(), 0);
        assert_eq!(simulation.pinger.counts().tx_stamp_missing, 0);
    }
}

#[test]
fn missing_stamp_is_absent_and_counted() {
    let mut simulation = Simulation::new(open(1, 10 * MS, 500 * MS));
    simulation.pinger.await_stamp(Some(TxPoint::Kernel));
    let mut samples = Vec::new();
    let (now, real) = (simulation.mono(), simulation.real());
    let token = simulation.pinger.transmit(now, real, &mut |_| {}).unwrap();
    simulation.pinger.sent(token, real, Some(1));
    let rx = RxStamps { hw: None, driver: None, kernel: None, app: real + Nanos(MS) };
    simulation
        .pinger
        .receive(&[0, 0, 0, 0], 0, rx, now + Nanos(MS), &mut |s| samples.push(s))
        .unwrap();
    let linger_end = simulation.pinger.wake().expect("waits for duplicates");
    simulation.pinger.expire(linger_end, &mut |_| panic!("no sample"));
    let wake = simulation.pinger.wake().expect("waits for the timestamp");
    assert_eq!(wake, now + Nanos(MS) + STAMP_TIMEOUT);
    simulation.pinger.expire(wake, &mut |s| samples.push(s));
    assert_eq!(samples.len(), 1);
    assert_eq!((samples[0].state, samples[0].tx.kernel), (State::Received, None));
    assert_eq!(simulation.pinger.counts().tx_stamp_missing, 1);
    assert_eq!(simulation.pinger.wake(), None);
}

#[test]
fn interrupted_probes_are_neither_sent_nor_lost() {
    let mut simulation = Simulation::new(open(100, 10 * MS, 1_000 * MS));
    for _ in 0..3 {
        simulation.iterate(|_, _| vec![]);
        simulation.now += 10 * MS;
    }
    assert_eq!(simulation.pinger.abandon(&mut |_| {}), 3);
    assert_eq!(simulation.pinger.counts().sent, 0);
    assert_eq!(simulation.pinger.counts().lost, 0);
    assert_eq!(simulation.pinger.wake(), None);
}

#[test]
fn outstanding_probes_are_lost_when_the_socket_breaks() {
    let config = Config { warm_up: 1, ..open(100, 10 * MS, 1_000 * MS) };
    let mut simulation = Simulation::new(config);
    for _ in 0..4 {
        // The warm-up probe and all probes from 1 on are not answered in time.
        simulation.iterate(|id, _| if id == 0 { vec![MS] } else { vec![] });
        simulation.now += 10 * MS;
    }
    let now = simulation.mono();
    simulation.pinger.lose_outstanding(now, &mut |sample| simulation.samples.push(sample));
    assert_eq!(
        (simulation.states(State::Received), simulation.states(State::Lost)),
        (vec![0], vec![1, 2])
    );
    assert_eq!(simulation.pinger.abandon(&mut |_| panic!("all replies were reported")), 0);
    let counts = simulation.pinger.counts();
    assert_eq!((counts.sent, counts.received, counts.lost), (3, 1, 2));
    assert_eq!(simulation.pinger.wake(), None);
}

#[test]
fn failed_send_is_not_counted_as_sent() {
    let mut simulation = Simulation::new(open(2, 10 * MS, 50 * MS));
    let mut samples = Vec::new();
    let (now, real) = (simulation.mono(), simulation.real());
    let token = simulation.pinger.transmit(now, real, &mut |_| {}).unwrap();
    simulation.pinger.send_failed(token, real, now, &mut |s| samples.push(s));
    assert_eq!(samples[0].state, State::SendFailed);
    assert_eq!((simulation.pinger.counts().sent, simulation.pinger.counts().send_failed), (0, 1));
    let simulation = simulation.run(|_, _| vec![MS]);
    assert_eq!(simulation.states(State::Received), [1]);
}

#[test]
fn run_ends_after_its_duration() {
    let config =
        Config { duration: Some(Nanos(95 * MS)), count: None, ..open(0, 10 * MS, MS * 50) };
    let simulation = Simulation::new(config).run(|_, _| vec![MS]);
    assert_eq!(simulation.pinger.counts().sent, 10, "at 0, 10 ... 90 ms");
}

proptest! {
    /// Every probe has exactly one outcome and the counters add up, whatever the network does.
    #[test]
    fn outcomes_are_disjoint_and_add_up(seed in any::<u64>(), closed_loop in any::<bool>()) {
        // The delays are a hash of seed and id, because `ReplyDelays` is a function pointer.
        std::thread_local!(static SEED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        SEED.set(seed);
        let reply_delays: ReplyDelays = |id, _| {
            let mut x = SEED.get() ^ (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut next = || { x ^= x << 13; x ^= x >> 7; x ^= x << 17; x };
            let copies = [0, 1, 1, 1, 1, 2, 3][(next() % 7) as usize];
            (0..copies).map(|_| (next() % 80) as i64 * MS).collect()
        };
        let config = if closed_loop { closed(200, 0, 50 * MS) } else { open(200, 3 * MS, 50 * MS) };
        let simulation = Simulation::new(config).run(reply_delays);
        let counts = simulation.pinger.counts();
        prop_assert_eq!(counts.sent, 200);
        prop_assert_eq!(counts.received + counts.lost + counts.late, 200);
        prop_assert_eq!(simulation.states(State::Received).len() as u64, counts.received);
        prop_assert_eq!(simulation.states(State::Late).len() as u64, counts.late);
        prop_assert_eq!(simulation.states(State::Lost).len() as u64, counts.lost + counts.late);
        prop_assert_eq!(simulation.states(State::Duplicate).len() as u64, counts.duplicate);
        let mut resolved = simulation.states(State::Received);
        resolved.extend(simulation.states(State::Lost));
        resolved.sort_unstable();
        prop_assert_eq!(resolved, (0..200).collect::<Vec<_>>());
    }
}
