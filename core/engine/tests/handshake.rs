//! A protocol whose reflector must open a session before it answers probes.

use dwell_engine::pinger::{Config, Pinger, ProbeSchedule};
use dwell_engine::protocol::{
    Handshake, MAX_HANDSHAKE_LEN, OpenError, OpenStep, Opening, Protocol, Reject, Reply, WireId,
};
use dwell_sample::RxStamps;
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

const HANDSHAKE: Handshake =
    Handshake { timeouts: &[Nanos::from_secs(1), Nanos::from_secs(2), Nanos::from_secs(4)] };

/// Messages: a letter, the token of the session, and the sequence number of a probe.
#[derive(Debug, Default)]
struct Tokened {
    token: Option<u8>,
}

impl Protocol for Tokened {
    fn capacity(&self) -> usize {
        3
    }

    fn write(&mut self, id: u64, _now: Instant<Realtime>, message: &mut [u8]) -> usize {
        message.copy_from_slice(&[b'p', self.token.expect("the session is open"), id as u8]);
        message.len()
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        match *message {
            [b'r', token, seq] if Some(token) == self.token => {
                Ok(Reply::plain(WireId::low(seq.into(), 8)))
            }
            _ => Err(Reject::Unknown),
        }
    }

    fn write_open(&mut self, message: &mut [u8]) -> usize {
        message[..1].copy_from_slice(b"o");
        1
    }

    fn read_open(&mut self, message: &[u8]) -> Result<(), OpenError> {
        match *message {
            [b't', token] => {
                self.token = Some(token);
                Ok(())
            }
            [b'c'] => Err(OpenError::Closed),
            [b'i'] => Err(OpenError::Restricted("interval")),
            _ => Err(OpenError::Reject(Reject::Malformed)),
        }
    }

    fn write_close(&mut self, message: &mut [u8]) -> usize {
        let Some(token) = self.token.take() else { return 0 };
        message[..2].copy_from_slice(&[b'x', token]);
        2
    }
}

/// Opens a session over a network without delay. `answer` returns the reply to the n-th request, if
/// any arrives. Returns the times of the requests in seconds.
fn open(
    protocol: &mut Tokened,
    answer: impl Fn(usize) -> Option<&'static [u8]>,
) -> (Vec<i64>, Result<(), Option<OpenError>>) {
    let mut now = Instant::<Monotonic>::from_nanos(0);
    let mut opening = Opening::new(&HANDSHAKE, now);
    let mut requests = Vec::new();
    loop {
        match opening.poll(now) {
            OpenStep::Send => {
                let mut message = [0; MAX_HANDSHAKE_LEN];
                assert_eq!(protocol.write_open(&mut message), 1);
                requests.push(now.as_nanos() / 1_000_000_000);
                match answer(requests.len()).map(|reply| protocol.read_open(reply)) {
                    None | Some(Err(OpenError::Reject(_))) => {}
                    Some(Ok(())) => return (requests, Ok(())),
                    Some(Err(error)) => return (requests, Err(Some(error))),
                }
            }
            OpenStep::WaitUntil(until) => now = until,
            OpenStep::TimedOut => return (requests, Err(None)),
        }
    }
}

#[test]
fn lost_open_request_is_repeated_after_its_time_out() {
    let mut protocol = Tokened::default();
    let opened = open(&mut protocol, |n| (n == 3).then_some(b"t7"));
    assert_eq!(opened, (vec![0, 1, 3], Ok(())));
    assert_eq!(protocol.token, Some(b'7'));
}

#[test]
fn session_without_any_reply_times_out() {
    assert_eq!(open(&mut Tokened::default(), |_| None), (vec![0, 1, 3], Err(None)));
}

#[test]
fn foreign_message_does_not_open_the_session() {
    let opened = open(&mut Tokened::default(), |n| if n == 1 { Some(b"??") } else { Some(b"t7") });
    assert_eq!(opened, (vec![0, 1], Ok(())));
}

#[test]
fn refusal_ends_the_handshake() {
    let refused = |reply: &'static [u8]| open(&mut Tokened::default(), |_| Some(reply)).1;
    assert_eq!(refused(b"c"), Err(Some(OpenError::Closed)));
    assert_eq!(refused(b"i"), Err(Some(OpenError::Restricted("interval"))));
}

#[test]
fn probes_carry_the_token_until_the_session_is_closed() {
    let mut protocol = Tokened::default();
    open(&mut protocol, |_| Some(b"t7")).1.unwrap();
    let config = Config {
        departures: ProbeSchedule::Open { interval: Nanos::from_millis(10) },
        count: Some(1),
        duration: None,
        timeout: Nanos::from_secs(1),
        warm_up: 0,
        warm_up_interval: Nanos::ZERO,
    };
    let start = Instant::from_nanos(0);
    let mut pinger = Pinger::new(protocol, config, start);
    let token = pinger.transmit(start, Instant::EPOCH, &mut |_| {}).expect("a probe is due");
    pinger.sent(token, Instant::EPOCH, None);
    assert_eq!(pinger.message(), b"p7\0");
    let rx = RxStamps { driver: None, app: Instant::EPOCH, kernel: None, hw: None };
    assert_eq!(pinger.receive(b"r8\0", 0, rx, start, &mut |_| {}), Err(Reject::Unknown));
    assert_eq!(pinger.receive(b"r7\0", 0, rx, start, &mut |_| {}), Ok(0));
    let mut message = [0; MAX_HANDSHAKE_LEN];
    assert_eq!(pinger.write_close(&mut message), 2);
    assert_eq!(&message[..2], b"x7");
    assert_eq!(pinger.write_close(&mut message), 0, "already closed");
}
