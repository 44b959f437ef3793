//! Traffic and relay jobs of a node driven over a pipe, with the samples of both ends.

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

use std::fs::{self, Permissions};
use std::io::BufReader;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dwell_protocol::{
    Event, Frame, Job, JobId, PingJob, PingParameters, ReflectJob, RelayJob, Request, SinkJob,
    TrafficJob, read_frame, write_message,
};
use dwell_record::segment::{self, Record};
use dwell_record::{Scalar, Summary};
use support::{DWELL, free_port};

struct Node {
    child: Child,
    requests: ChildStdin,
    events: BufReader<ChildStdout>,
}

impl Node {
    fn start() -> Self {
        Self::started_by(Command::new(DWELL).args(["worker"]))
    }

    /// A node whose files are limited to 8 KiB.
    fn without_room() -> Self {
        let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" worker";
        Self::started_by(Command::new("sh").args(["-c", script, DWELL]))
    }

    fn started_by(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        let mut node = Self { child, requests, events };
        assert!(matches!(node.next().0, Event::Hello { .. }));
        node
    }

    fn send(&mut self, request: &Request) {
        write_message(&mut self.requests, request).unwrap();
    }

    /// Returns the next event other than progress, and the segment data before it.
    fn next(&mut self) -> (Event, Vec<u8>) {
        let mut data = Vec::new();
        loop {
            match read_frame::<Event>(&mut self.events).unwrap().expect("the node runs") {
                Frame::Data(_, piece) => data.extend_from_slice(&piece),
                Frame::Message(Event::Progress { .. }) => {}
                Frame::Message(event) => return (event, data),
            }
        }
    }

    fn finished(&mut self, expected: JobId) -> Summary {
        match self.next().0 {
            Event::Finished { job, summary, .. } if job == expected => *summary,
            event => panic!("job {} has not finished: {event:?}", expected.0),
        }
    }

    /// Pulls a job's samples; returns the number of flows and the packet ids.
    fn pull(&mut self, job: JobId) -> (usize, Vec<u64>) {
        self.send(&Request::Pull { job, from: 0 });
        let (event, data) = self.next();
        assert!(matches!(event, Event::Pulled { bytes, .. } if bytes == data.len() as u64));
        let (mut flows, mut ids) = (0, Vec::new());
        segment::read(&mut &data[..], &mut |record| match record {
            Record::Flow(_) => flows += 1,
            Record::PacketObservation(observation) => ids.push(observation.id),
            Record::Sample(sample, ..) => ids.push(sample.id),
            Record::Header(_) | Record::Host(_) | Record::Spike(_) => {}
        })
        .unwrap();
        (flows, ids)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn traffic_job_with_count_ends_and_both_ends_have_samples() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let mut node = Node::start();
    let (sink, traffic) = (JobId(1), JobId(2));
    let what = Job::Sink(SinkJob { urls: vec![url.clone()], ..SinkJob::default() });
    assert!(!what.is_finite());
    node.send(&Request::Start { job: sink, what, samples: true });
    assert!(matches!(node.next().0, Event::Ready { job } if job == sink));
    let text = format!(
        r#"{{"url":"{url}","rate":"1000pps","parameters":{{"count":100,"size":"200B","header":"iperf"}}}}"#
    );
    let what = Job::Traffic(serde_json::from_str::<TrafficJob>(&text).unwrap());
    assert!(what.is_finite());
    node.send(&Request::Start { job: traffic, what, samples: true });
    assert!(matches!(node.next().0, Event::Ready { job } if job == traffic));
    let sent = node.finished(traffic).packets.unwrap();
    assert_eq!((sent.sent, sent.received), (100, 100));
    node.send(&Request::Stop { job: sink });
    assert_eq!(node.finished(sink).packets.unwrap().received, 100);
    // The 100th packet is the end of the flow.
    let all = (1, (1..100).collect::<Vec<u64>>());
    let mut pulled = node.pull(traffic);
    pulled.1.sort_unstable();
    assert_eq!(pulled, all);
    assert_eq!(node.pull(sink), all);
}

#[test]
fn ping_job_measures_a_reflect_job_and_its_samples_are_pulled() {
    let url = format!("stamp://127.0.0.1:{}", free_port("127.0.0.1"));
    let mut node = Node::start();
    let (reflect, ping) = (JobId(1), JobId(2));
    let what = Job::Reflect(ReflectJob { urls: vec![url.clone()], ..ReflectJob::default() });
    node.send(&Request::Start { job: reflect, what, samples: false });
    assert!(matches!(node.next().0, Event::Ready { job } if job == reflect));
    let text = format!(r#"{{"target":"{url}","parameters":{{"count":50,"interval":"2ms"}}}}"#);
    let what = Job::Ping(Box::new(serde_json::from_str(&text).unwrap()));
    node.send(&Request::Start { job: ping, what, samples: true });
    assert!(matches!(node.next().0, Event::Ready { job } if job == ping));
    let summary = node.finished(ping);
    assert_eq!(summary.packets.as_ref().map(|packets| packets.received), Some(50));
    assert!(summary.metrics.contains_key("rtt_ns"), "{summary:?}");
    node.send(&Request::Stop { job: reflect });
    node.finished(reflect);
    let (_, mut ids) = node.pull(ping);
    ids.sort_unstable();
    assert_eq!(ids, (0..50).collect::<Vec<u64>>());
}

#[test]
fn relay_result_survives_a_full_spool() {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let listen = format!("127.0.0.1:{}", free_port("127.0.0.1"));
    let mut node = Node::without_room();
    let relay = JobId(1);
    let to = format!("udp://{}", far.local_addr().unwrap());
    let what = Job::Relay(Box::new(RelayJob::translate(format!("udp://{listen}"), to)));
    node.send(&Request::Start { job: relay, what, samples: true });
    assert!(matches!(node.next().0, Event::Ready { job } if job == relay));
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    for id in 0..2_000_u64 {
        near.send_to(&id.to_be_bytes(), &listen).unwrap();
        assert_eq!(far.recv(&mut [0; 64]).unwrap(), 8);
    }
    node.send(&Request::Stop { job: relay });
    let summary = node.finished(relay);
    let forward = summary.values["relayed_forward"];
    assert_eq!(forward, Some(Scalar::Count(2_000)), "{:?}", summary.values);
    let warnings = format!("{:?}", summary.trust.warnings);
    assert!(warnings.contains("cannot write the spool"), "{warnings}");
}

#[test]
fn clock_is_answered_at_once_during_a_measurement() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let mut node = Node::start();
    let (server, ping) = (JobId(1), JobId(2));
    let reflect = ReflectJob { urls: vec![url.clone()], ..ReflectJob::default() };
    node.send(&Request::Start { job: server, what: Job::Reflect(reflect), samples: false });
    assert!(matches!(node.next().0, Event::Ready { job } if job == server));
    let parameters = PingParameters { count: Some(100_000), ..PingParameters::default() };
    let what = Job::Ping(Box::new(PingJob { parameters, ..PingJob::to(&url) }));
    node.send(&Request::Start { job: ping, what, samples: true });
    assert!(matches!(node.next().0, Event::Ready { job } if job == ping));
    let mut longest = Duration::ZERO;
    let mut last_raw = 0;
    for id in 0..50 {
        let (start, before) = (Instant::now(), realtime_ns());
        node.send(&Request::Clock { id });
        let (event, after) = (node.next().0, realtime_ns());
        let Event::Clock { id: answered, realtime_ns, monotonic_ns, raw_ns, width_ns } = event
        else {
            panic!("expected the clock, got {event:?}")
        };
        assert_eq!(answered, id);
        assert!((before..=after).contains(&realtime_ns), "{before} {realtime_ns} {after}");
        assert!(monotonic_ns > 0 && raw_ns > last_raw && width_ns >= 0);
        last_raw = raw_ns;
        longest = longest.max(start.elapsed());
    }
    // About 100 us here; a busy machine may take longer.
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    node.send(&Request::Stop { job: ping });
    let summary = node.finished(ping);
    assert!(summary.packets.unwrap().sent < 100_000, "it was stopped");
}

fn realtime_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

#[test]
fn clock_state_survives_a_daemon_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let tracking = "#!/bin/sh\necho run >> \"$0.runs\"\necho \"C0248F95,192.0.2.1,2,1732631111.1,-0.000012,-0.000001,\
                    0.00005,-12.345,-0.001,0.123,0.012,0.001,64.5,Normal\"\n";
    for (name, script) in [("chronyc", tracking), ("pmc", "#!/bin/sh\nexec sleep 5\n")] {
        fs::write(dir.path().join(name), script).unwrap();
        fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o700)).unwrap();
    }
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut node = Node::started_by(Command::new(DWELL).args(["worker"]).env("PATH", path));
    let start = Instant::now();
    node.send(&Request::ClockState { id: 7 });
    node.send(&Request::Clock { id: 8 });
    assert!(matches!(node.next().0, Event::Clock { id: 8, .. }), "not behind the programs");
    let Event::ClockState { id: 7, state } = node.next().0 else { panic!("expected the state") };
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(state.ptp, None);
    let chrony = state.chrony.unwrap();
    assert_eq!((chrony.stratum, chrony.error_ns), (2, 12_000 + 1_000_000 + 6_000_001));
    assert!(state.kernel.unwrap().frequency_ppm.abs() <= 1_000.0);
    // The daemons are asked once per connection.
    node.send(&Request::ClockState { id: 9 });
    let Event::ClockState { id: 9, state } = node.next().0 else { panic!("expected the state") };
    assert!(state.kernel.is_some() && state.chrony == Some(chrony) && state.ptp.is_none());
    assert_eq!(fs::read_to_string(dir.path().join("chronyc.runs")).unwrap(), "run\n");
}
