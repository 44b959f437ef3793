//! Tests of the datagram relay, turn by turn, over loopback.

use std::net::UdpSocket;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::*;
use crate::relay::record::RING_CAPACITY;

/// Returns a URL with a port that was free a moment ago.
fn free(host: &str) -> String {
    let address = UdpSocket::bind((host, 0)).and_then(|socket| socket.local_addr());
    format!("udp://{}", address.unwrap())
}

#[test]
fn expiring_flow_relays_unread_packets() {
    own_socket_expires("127.0.0.6", "127.0.0.1:0");
    own_socket_expires("::1", "[::1]:0");
}

fn own_socket_expires(listen: &str, other: &str) {
    let far = UdpSocket::bind(other).unwrap();
    far.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let to = format!("udp://{}", far.local_addr().unwrap());
    let job = RelayJob::translate(free(listen), to);
    let setup = RelaySetup::new(&job).map_err(|failure| failure.error).unwrap();
    let dropped = AtomicU64::new(0);
    let (ring, _consumer) = rtrb::RingBuffer::new(RING_CAPACITY);
    let events = EventSender { ring, dropped: &dropped };
    let mut relay = Relay::open(&setup, &job, StampRequest::User, events).unwrap();
    let client = UdpSocket::bind(other).unwrap();
    client.connect(relay.listener.local_addr()).unwrap();
    let mut buffer = [0; 9];
    let mut expect = |expected: &[u8]| {
        let (len, from) = far.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], expected);
        from
    };
    client.send(b"first").unwrap();
    while relay.owner.is_none() || relay.catching_up.is_some() {
        relay.turn(RECEIVE_BATCH, &mut Relay::take).unwrap();
    }
    let before = expect(b"first");
    // The next packet arrives after the relay last polled and before the flow expires.
    client.send(b"second").unwrap();
    let idle = |relay: &Relay<'_>| monotonic() + relay.setup.idle + Nanos::from_secs(1);
    relay.now = idle(&relay);
    relay.upkeep(&mut Relay::take).unwrap();
    assert_eq!((expect(b"second"), relay.flows.len()), (before, 1));
    // Both directions continue via the listener.
    far.send_to(b"back", before).unwrap();
    client.send(b"third").unwrap();
    while relay.counts.directions.iter().any(|traffic| traffic.relayed < 1)
        || relay.counts.directions[0].relayed < 3
    {
        relay.turn(RECEIVE_BATCH, &mut Relay::take).unwrap();
    }
    assert_eq!(expect(b"third"), before);
    assert_eq!(client.recv(&mut [0; 9]).unwrap(), 4);
    // The flow expires once it is idle.
    relay.tick = relay.now;
    relay.now = idle(&relay) + relay.setup.idle;
    relay.upkeep(&mut Relay::take).unwrap();
    assert_eq!((relay.flows.len(), relay.counts.flows.expired), (0, 0), "counted at the end");
    assert_eq!(relay.end().flows.expired, 1);
}

#[test]
fn counters_survive_a_socket_failure() {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = format!("udp://{}", far.local_addr().unwrap());
    let job = RelayJob::translate(free("127.0.0.5"), to);
    let setup = RelaySetup::new(&job).map_err(|failure| failure.error).unwrap();
    let dropped = AtomicU64::new(0);
    let (ring, _consumer) = rtrb::RingBuffer::new(RING_CAPACITY);
    let events = EventSender { ring, dropped: &dropped };
    let relay = Relay::open(&setup, &job, StampRequest::User, events).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    (0..3).for_each(|_| {
        client.send_to(b"counted", relay.listener.local_addr()).unwrap();
    });
    let mut fail_at_last = |relay: &mut Relay<'_>, socket| match relay.take(socket)? {
        received if received || socket != Socket::Listener => Ok(received),
        _ => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
    };
    let ended = relay.run_by(RECEIVE_BATCH, &mut fail_at_last, &AtomicBool::new(false));
    let failure = ended.failure.expect("its socket failed");
    assert_eq!(failure.kind(), io::ErrorKind::ConnectionAborted);
    let [forward, _] = ended.counts.directions;
    assert_eq!((forward.received, forward.relayed, ended.counts.flows.opened), (3, 3, 1));
}
