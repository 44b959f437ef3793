//! Drives a node over a pipe.

use std::fs;
use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use dwell_protocol::{
    CpuJob, Event, Frame, Job, JobId, KeySource, PingJob, PingParameters, ReflectJob, RelayJob,
    RelayMode, Request, VERSION, read_frame, write_message,
};

struct Node {
    child: Child,
    requests: Option<ChildStdin>,
    events: BufReader<ChildStdout>,
}

impl Node {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dwell"))
            .arg("worker")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = child.stdin.take();
        let events = BufReader::new(child.stdout.take().unwrap());
        let mut node = Self { child, requests, events };
        let Event::Hello { version, jobs, boot_id, .. } = node.next() else {
            panic!("expected Hello first")
        };
        assert_eq!((version, jobs.len()), (VERSION, Job::NAMES.len()));
        let own = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(boot_id.as_deref(), Some(own.trim()));
        node
    }

    fn ask(&mut self, request: &Request) {
        write_message(self.requests.as_mut().unwrap(), request).unwrap();
    }

    /// Returns the next event other than progress. Segment data is skipped.
    fn next(&mut self) -> Event {
        loop {
            match read_frame::<Event>(&mut self.events).unwrap().expect("the node must be running")
            {
                Frame::Message(Event::Progress { .. }) | Frame::Data(..) => {}
                Frame::Message(event) => return event,
            }
        }
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a loopback port that was free a moment ago.
fn free_port() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn ended_job_releases_descriptors_and_port() {
    let mut node = Node::start();
    let before = node.descriptors();
    let url = format!("udp://127.0.0.1:{}", free_port());
    for round in 0..20 {
        let (server, ping) = (JobId(2 * round), JobId(2 * round + 1));
        let reflect = ReflectJob { urls: vec![url.clone()], ..ReflectJob::default() };
        node.ask(&Request::Start { job: server, what: Job::Reflect(reflect), samples: false });
        assert!(matches!(node.next(), Event::Ready { job } if job == server), "round {round}");
        let parameters = PingParameters {
            count: Some(10),
            closed_loop: true,
            warm_up: Some(0),
            ..PingParameters::default()
        };
        let what = Job::Ping(Box::new(PingJob { parameters, ..PingJob::to(&url) }));
        node.ask(&Request::Start { job: ping, what, samples: true });
        assert!(matches!(node.next(), Event::Ready { job } if job == ping));
        let Event::Finished { summary, segment_bytes, .. } = node.next() else {
            panic!("expected a result")
        };
        assert_eq!(summary.packets.unwrap().received, 10);
        node.ask(&Request::Pull { job: ping, from: 0 });
        let Event::Pulled { bytes, .. } = node.next() else { panic!("expected a segment") };
        assert_eq!(Some(bytes), segment_bytes);
        node.ask(&Request::Stop { job: server });
        assert!(matches!(node.next(), Event::Finished { job, .. } if job == server));
    }
    // Samples are kept until the next job starts.
    let (job, what) = (JobId(99), Job::Ping(Box::new(PingJob::to("nonsense://x"))));
    node.ask(&Request::Start { job, what, samples: false });
    assert!(matches!(node.next(), Event::Ready { .. }));
    assert!(matches!(node.next(), Event::Failed { .. }));
    // The thread of the last job may still be ending.
    let deadline = Instant::now() + Duration::from_secs(5);
    while node.descriptors() > before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(node.descriptors(), before);
}

#[test]
fn relay_job_returns_observations_and_frees_its_port() {
    let mut node = Node::start();
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    far.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    for round in 0..3 {
        let job = JobId(round);
        let to = format!("udp://{}", far.local_addr().unwrap());
        let mut relay = RelayJob::translate(format!("udp://{listen}"), to);
        (relay.mode, relay.key) = (RelayMode::Encrypt, KeySource::Random);
        let what = Job::Relay(Box::new(relay));
        node.ask(&Request::Start { job, what, samples: true });
        assert!(matches!(node.next(), Event::Ready { .. }), "round {round}");
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..5 {
            client.send_to(&[7; 100], &listen).unwrap();
            assert_eq!(far.recv_from(&mut [0; 200]).unwrap().0, 112);
        }
        node.ask(&Request::Stop { job });
        let Event::Finished { summary, segment_bytes, .. } = node.next() else {
            panic!("expected a result")
        };
        let value = |name: &str| summary.values[name].map(|value| value.as_f64());
        assert_eq!((value("relayed_forward"), value("flows")), (Some(5.0), Some(1.0)));
        node.ask(&Request::Pull { job, from: 0 });
        let Event::Pulled { bytes, .. } = node.next() else { panic!("expected a segment") };
        assert_eq!(Some(bytes), segment_bytes);
    }
}

#[test]
fn node_exits_when_its_input_closes() {
    let mut node = Node::start();
    let cpu = CpuJob { level: "20%".parse().unwrap(), cpus: vec![0], duration: None };
    node.ask(&Request::Start { job: JobId(1), what: Job::Cpu(cpu), samples: false });
    assert!(matches!(node.next(), Event::Ready { .. }));
    drop(node.requests.take());
    let ended = Instant::now();
    while node.child.try_wait().unwrap().is_none() {
        // A load runs until it is stopped, and the host may steal half of the CPU time.
        assert!(ended.elapsed() < Duration::from_secs(3), "the node is still running");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn node_without_requests_ends_its_jobs_and_exits() {
    let mut node = Node::start_with(&["--silence-timeout", "500ms"]);
    let url = format!("udp://127.0.0.1:{}", free_port());
    let reflect = ReflectJob { urls: vec![url.clone()], ..ReflectJob::default() };
    node.ask(&Request::Start { job: JobId(1), what: Job::Reflect(reflect), samples: false });
    assert!(matches!(node.next(), Event::Ready { .. }));
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(1_500) {
        node.ask(&Request::Hail { job: JobId(7) });
        assert!(matches!(node.next(), Event::Alive { job: JobId(7) }));
        std::thread::sleep(Duration::from_millis(50));
    }
    // The input stays open.
    assert!(matches!(node.next(), Event::Finished { job: JobId(1), .. }));
    assert_eq!(node.child.wait().unwrap().code(), Some(1));
    assert!(node.requests.is_some());
}

#[test]
fn damaged_part_of_samples_can_be_pulled_again() {
    let mut node = Node::start();
    let (reflector, job) = (JobId(1), JobId(2));
    let url = format!("udp://127.0.0.1:{}", free_port());
    let reflect = ReflectJob { urls: vec![url.clone()], ..ReflectJob::default() };
    node.ask(&Request::Start { job: reflector, what: Job::Reflect(reflect), samples: false });
    assert!(matches!(node.next(), Event::Ready { .. }));
    let parameters =
        PingParameters { count: Some(10), closed_loop: true, ..PingParameters::default() };
    let what = Job::Ping(Box::new(PingJob { parameters, ..PingJob::to(&url) }));
    node.ask(&Request::Start { job, what, samples: true });
    assert!(matches!(node.next(), Event::Ready { .. }));
    let Event::Finished { segment_bytes, .. } = node.next() else { panic!("expected a result") };
    let whole = segment_bytes.unwrap();
    for from in [0, 0, whole - 7, 5, whole] {
        node.ask(&Request::Pull { job, from });
        let Event::Pulled { from: sent_from, bytes, left, .. } = node.next() else {
            panic!("expected a part")
        };
        assert_eq!((sent_from, bytes, left), (from, whole - from, 0));
    }
}

#[test]
fn invalid_frame_ends_a_node_but_a_failed_job_does_not() {
    let mut node = Node::start();
    let job = JobId(1);
    let what = Job::Ping(Box::new(PingJob::to("nonsense://x")));
    node.ask(&Request::Start { job, what, samples: false });
    assert!(matches!(node.next(), Event::Ready { .. }));
    let Event::Failed { reason, .. } = node.next() else { panic!("expected a failure") };
    assert!(reason.contains("nonsense"), "{reason}");
    node.ask(&Request::Pull { job: JobId(9), from: 0 });
    assert!(matches!(node.next(), Event::Failed { job: JobId(9), .. }));
    std::io::Write::write_all(node.requests.as_mut().unwrap(), b"\xff\xff\xff\xffJ").unwrap();
    assert_eq!(node.child.wait().unwrap().code(), Some(1));
}
