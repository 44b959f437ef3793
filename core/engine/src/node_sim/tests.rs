//! The model against the tables of Chung 2021, and its rules one by one.

use dwell_units::TimeRange;

use super::*;

/// Latencies in ms of tables 1 to 4 of Chung 2021 (S3.5). Row 1 of table 2 is the difference of its
/// two timestamps; 260 is printed.
const TCP_BEST: [f64; 13] = [
    1024.0, 979.0, 972.0, 978.0, 980.0, 1024.0, 2000.0, 2002.0, 2004.0, 1023.0, 977.0, 981.0,
    2001.0,
];
const UDP_BEST: [f64; 13] =
    [326.0, 556.0, 554.0, 373.0, 510.0, 324.0, 511.0, 650.0, 324.0, 556.0, 697.0, 510.0, 557.0];
const TCP_WORST: [f64; 13] = [
    1943.0, 1665.0, 1665.0, 1665.0, 1530.0, 1572.0, 1529.0, 1760.0, 1808.0, 1945.0, 1803.0, 1851.0,
    1758.0,
];
const UDP_WORST: [f64; 13] =
    [601.0, 509.0, 880.0, 697.0, 831.0, 786.0, 695.0, 834.0, 556.0, 742.0, 743.0, 557.0, 831.0];

/// Pause of Chung's client after each reply.
const PAUSE: Nanos = Nanos::from_secs(5);

/// Seed of the model in all tests that draw.
const SEED: u64 = 2_021;

/// Number of exchanges simulated per table.
const EXCHANGES: usize = 5_000;

/// Round trips in ms of the first of `clients` clients in closed loop, in virtual time.
fn round_trips(settings: NodeSettings, is_stream: bool, clients: usize) -> Vec<f64> {
    let mut node = NodeSim::new(settings, Instant::EPOCH, SEED);
    let mut streams: Vec<_> =
        (0..clients).filter_map(|_| is_stream.then(|| node.open())?).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED + 1);
    // Requests to send: time and client.
    let mut requests: BTreeMap<(Instant<Monotonic>, usize), ()> = BTreeMap::new();
    for client in 0..clients {
        requests.insert((Instant::EPOCH + Nanos::from_millis(700 * client as i64), client), ());
    }
    let mut found = Vec::new();
    while found.len() < EXCHANGES {
        let next = requests.first_key_value().map(|((at, client), ())| (*at, *client));
        match (next, node.wake()) {
            (Some((at, client)), wake) if wake.is_none_or(|wake| at <= wake) => {
                requests.pop_first();
                let at = NodeArrival { arrived: at, received: at };
                match is_stream {
                    true => node.receive_stream(&client, &mut streams[client], REQUEST, at),
                    false => node.receive_datagram(client, REQUEST, at),
                }
            }
            (_, Some(wake)) => {
                let reply = node.due(wake).unwrap();
                if reply.to == 0 {
                    found.push((reply.due - reply.arrived).0 as f64 / 1e6);
                }
                // A program never pauses exactly.
                let late = Nanos(random.random_range(0..2_000_000));
                requests.insert((reply.due + PAUSE + late, reply.to), ());
            }
            (None, None) | (Some(_), None) => unreachable!("every client waits or is due"),
        }
    }
    found
}

/// Largest distance between two empirical distributions (Kolmogorov-Smirnov).
fn largest_distance(a: &[f64], b: &[f64]) -> f64 {
    let below = |all: &[f64], x: f64| {
        all.iter().filter(|value| **value <= x).count() as f64 / all.len() as f64
    };
    // Clusters of a coarse clock: differences of less than half a tick are no difference in shape.
    let points = a.iter().chain(b).map(|x| x + TOLERANCE_MS);
    points.map(|x| (below(a, x) - below(b, x)).abs()).fold(0.0, f64::max)
}

/// Tolerance for the rounding of the tables, their timestamps and the estimate of the tick.
const TOLERANCE_MS: f64 = 10.0;

/// Critical distance of the two-sample test at 5 % (Smirnov's approximation).
fn critical_distance(n: usize, m: usize) -> f64 {
    let (n, m) = (n as f64, m as f64);
    1.358 * ((n + m) / (n * m)).sqrt()
}

/// Two-sided p-value of the Mann-Whitney test, by its normal approximation with a correction for
/// ties.
fn rank_p_value(a: &[f64], b: &[f64]) -> f64 {
    let (n, m) = (a.len() as f64, b.len() as f64);
    let mut b = b.to_vec();
    b.sort_by(f64::total_cmp);
    let count = |x: f64| {
        let below = b.partition_point(|y| *y < x - TOLERANCE_MS) as f64;
        let up_to = b.partition_point(|y| *y <= x + TOLERANCE_MS) as f64;
        (below + up_to) / 2.0
    };
    let u: f64 = a.iter().map(|x| count(*x)).sum();
    let sigma = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let z = (u - n * m / 2.0).abs() / sigma;
    // Upper tail of the normal distribution (Abramowitz and Stegun 26.2.17).
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = t
        * (0.319_381_53
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    2.0 * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

/// Whether neither test tells the samples apart at 5 %; prints both.
fn is_alike(name: &str, table: &[f64], model: &[f64]) -> bool {
    let distance = largest_distance(table, model);
    let critical = critical_distance(table.len(), model.len());
    let p = rank_p_value(table, model);
    println!(
        "{name}: seed {SEED}, mean {:.1} ms against {:.1} ms, Kolmogorov-Smirnov D {distance:.3} \
         (critical {critical:.3}), Mann-Whitney p {p:.3}",
        mean(model),
        mean(table),
    );
    distance < critical && p > 0.05
}

#[test]
fn chung_settings_reproduce_his_tables() {
    let (best, worst) = (NodeSettings::chung_2021_best(), NodeSettings::chung_2021_worst());
    for (name, table, settings, is_stream, clients) in [
        ("table 1, TCP best", &TCP_BEST, &best, true, 1),
        ("table 2, UDP best", &UDP_BEST, &best, false, 1),
        ("table 3, TCP worst", &TCP_WORST, &worst, true, 3),
        ("table 4, UDP worst", &UDP_WORST, &worst, false, 3),
    ] {
        let model = round_trips(settings.clone(), is_stream, clients);
        let tick = settings.clock_tick.0 as f64 / 1e6;
        let is_whole = |ms: &f64| (ms / tick - (ms / tick).round()).abs() < 1e-6;
        assert!(model.iter().all(is_whole), "{name}: every delay is a number of ticks");
        assert!(is_alike(name, table, &model), "{name}");
    }
}

#[test]
fn other_settings_differ_from_the_tables() {
    let best = NodeSettings::chung_2021_best();
    let slower = NodeSettings { loop_time: TimeRange::millis(500, 870), ..best.clone() };
    let patient = NodeSettings { read_timeout: Nanos::from_millis(1_200), ..best.clone() };
    let once = NodeSettings { repeated_reads: 0.0, ..NodeSettings::chung_2021_worst() };
    let swift = NodeSettings { read_timeout: Nanos::from_millis(800), ..once };
    for (name, table, settings, is_stream, clients) in [
        ("table 1 without a time-out", &TCP_BEST, NodeSettings::default(), true, 1),
        ("table 1 with 1.2 s", &TCP_BEST, patient, true, 1),
        ("table 2 with the worst case", &UDP_BEST, slower, false, 1),
        ("table 3 with 0.8 s", &TCP_WORST, swift, true, 3),
        ("table 4 with the best case", &UDP_WORST, best, false, 3),
    ] {
        assert!(!is_alike(name, table, &round_trips(settings, is_stream, clients)), "{name}");
    }
}

/// An arrival that the program receives at once.
fn arrival(at: Nanos) -> NodeArrival {
    NodeArrival { arrived: Instant::EPOCH + at, received: Instant::EPOCH + at }
}

/// The only reply of a node to a datagram at this instant.
fn reply_at(node: &mut NodeSim<u8>, at: Nanos) -> NodeReply<u8> {
    node.receive_datagram(0, REQUEST, arrival(at));
    node.due(Instant::EPOCH + Nanos::from_secs(1_000)).unwrap()
}

#[test]
fn clean_node_replies_at_once() {
    let mut node = NodeSim::new(NodeSettings::default(), Instant::EPOCH, SEED);
    let reply = reply_at(&mut node, Nanos(12_345));
    assert_eq!((reply.read, reply.due), (reply.arrived, reply.arrived));
}

#[test]
fn request_is_not_read_before_the_program_has_it() {
    let mut node = NodeSim::new(NodeSettings::default(), Instant::EPOCH, SEED);
    let received = Instant::EPOCH + Nanos(300);
    node.receive_datagram(0, REQUEST, NodeArrival { arrived: Instant::EPOCH, received });
    let reply = node.due(received).unwrap();
    assert_eq!((reply.arrived, reply.read, reply.due), (Instant::EPOCH, received, received));
}

#[test]
fn service_occupies_the_node_and_the_next_request_waits() {
    let service_time = TimeRange::millis(10, 10);
    let settings = NodeSettings { service_time, ..NodeSettings::default() };
    let mut node = NodeSim::new(settings, Instant::EPOCH, SEED);
    let at = |ms| Instant::EPOCH + Nanos::from_millis(ms);
    node.receive_datagram(1, REQUEST, arrival(Nanos::ZERO));
    node.receive_datagram(2, REQUEST, arrival(Nanos::from_millis(4)));
    node.receive_datagram(3, b"reques", arrival(Nanos::from_millis(4)));
    assert_eq!((node.wake(), node.due(at(9))), (Some(at(10)), None));
    assert_eq!(node.due(at(10)).map(|reply| reply.to), Some(1));
    let second = node.due(at(20)).unwrap();
    assert_eq!((second.to, second.read, second.due), (2, at(10), at(20)));
    assert_eq!((node.counts().requests, node.counts().malformed), (2, 1));
}

#[test]
fn delay_is_a_whole_number_of_ticks() {
    let settings = NodeSettings {
        clock_tick: Nanos::from_millis(10),
        service_time: TimeRange::millis(14, 14),
        ..NodeSettings::default()
    };
    let mut node = NodeSim::new(settings, Instant::EPOCH, SEED);
    for (arrival_ms, ticks) in [(100, 1), (205, 1), (306, 2)] {
        let reply = reply_at(&mut node, Nanos::from_millis(arrival_ms));
        assert_eq!(reply.due - reply.arrived, Nanos::from_millis(10 * ticks), "{arrival_ms}");
    }
}

#[test]
fn connection_beyond_the_sockets_is_refused() {
    let settings = NodeSettings { sockets: 2, ..NodeSettings::default() };
    let mut node: NodeSim<u8> = NodeSim::new(settings, Instant::EPOCH, SEED);
    let first = node.open().unwrap();
    let _second = node.open().unwrap();
    assert!(node.open().is_none());
    assert_eq!(node.counts().refused_connections, 1);
    node.close(first);
    assert!(node.open().is_some());
}

#[test]
fn request_in_pieces_is_read_when_its_last_byte_arrives() {
    let read_timeout = Nanos::from_millis(100);
    let settings = NodeSettings { read_timeout, ..NodeSettings::default() };
    let mut node = NodeSim::new(settings, Instant::EPOCH, SEED);
    let mut stream = node.open().unwrap();
    let at = |ms| Instant::EPOCH + Nanos::from_millis(ms);
    node.receive_stream(&7, &mut stream, b"xrequ", arrival(Nanos::ZERO));
    assert_eq!((node.wake(), node.counts().malformed), (None, 1));
    node.receive_stream(&7, &mut stream, b"est\r\n", arrival(Nanos::from_millis(5)));
    assert_eq!(node.wake(), Some(at(105)));
}
