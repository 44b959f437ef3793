//! Traffic and relay jobs of a node driven over a pipe, with the samples of both ends.

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

use std::io::BufReader;
use std::net::UdpSocket;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use dwell_protocol::{
    Event, Frame, Job, JobId, ReflectJob, RelayJob, Request, SinkJob, TrafficJob, read_frame,
    write_message,
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
        self.send(&Request::Pull { job });
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
