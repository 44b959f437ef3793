//! Two network namespaces joined by a veth pair, and a capture at the far end: the witness of what an
//! engine says of itself.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dwell_io::clock::{self, monotonic};
use dwell_io::netns;
use dwell_io::train::{Course, Departure, LEAD, Numbers, Payloads, TrainSender};
use dwell_units::{Monotonic, Nanos};
use dwell_wire::traffic::Mark;

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(20);

/// The flow of every test.
pub(crate) const FLOW: u32 = 7;

/// The port that trains go to.
pub(crate) const PORT: u16 = 7_007;

/// Two ends of a link: `198.19.7.1`, `fd00:7::1` near and `.2`, `::2` far, interfaces `near` and `far`.
pub(crate) struct Ends {
    pub(crate) near: PathBuf,
    pub(crate) far: PathBuf,
    /// Who takes the packets: the kernel gives them only those whose checksums are right.
    sinks: Vec<UdpSocket>,
    /// One test at a time: each of them keeps a CPU busy.
    _alone: MutexGuard<'static, ()>,
}

static ALONE_HERE: Mutex<()> = Mutex::new(());

impl Ends {
    /// `None`, and said why, where namespaces cannot be made.
    pub(crate) fn up() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !netns::may_create() {
            skip("needs root");
            return None;
        }
        let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = |end: &str| format!("dwell-train-{unique}-{end}");
        let path = |end: &str| Path::new("/run/netns").join(name(end));
        let alone = ALONE_HERE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ends = Self { near: path("near"), far: path("far"), sinks: vec![], _alone: alone };
        for end in ["near", "far"] {
            ip(&["netns", "add", &name(end)]);
        }
        let (near, far) = (name("near"), name("far"));
        let link = ["link", "add", "near", "netns", &near, "type", "veth", "peer", "far", "netns"];
        ip(&[&link[..], &[&far]].concat());
        for (name, end, number) in [(&near, "near", 1), (&far, "far", 2)] {
            ip(&["-n", name, "link", "set", "lo", "up"]);
            ip(&["-n", name, "link", "set", end, "up"]);
            ip(&["-n", name, "addr", "add", &format!("198.19.7.{number}/24"), "dev", end]);
            let v6 = format!("fd00:7::{number}/64");
            ip(&["-n", name, "addr", "add", &v6, "dev", end, "nodad"]);
        }
        for address in ["198.19.7.2", "fd00:7::2"] {
            let bind = || UdpSocket::bind((address, PORT)).unwrap();
            let sink = netns::within(&ends.far, bind).unwrap();
            sink.set_nonblocking(true).unwrap();
            ends.sinks.push(sink);
        }
        Some(ends)
    }

    /// Runs `work` at the near end.
    pub(crate) fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        netns::within(&self.near, work).unwrap()
    }

    /// Gives the near end this queueing discipline; if there is none, what tc says.
    pub(crate) fn qdisc(&self, qdisc: &[&str]) -> Result<(), String> {
        let name = self.near.file_name().unwrap().to_str().unwrap();
        let add = ["-n", name, "qdisc", "replace", "dev", "near", "root"];
        let output = Command::new("tc").args(add).args(qdisc).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    /// The numbers of so many packets of trains, and of more that wait, as they came to the far end's
    /// program.
    pub(crate) fn numbers(&self, packets: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut buffer = [0; 2_000];
        let since = Instant::now();
        while numbers.len() < packets && since.elapsed() < PATIENCE {
            for sink in &self.sinks {
                while let Ok(len) = sink.recv(&mut buffer) {
                    numbers.push(Mark::parse(&buffer[..len]).expect("a mark").seq);
                }
            }
        }
        numbers
    }

    /// How many packets the far end's programs have got since they were last asked.
    pub(crate) fn arrived(&self) -> usize {
        let arrived =
            |sink: &UdpSocket| (0..).take_while(|_| sink.recv(&mut [0; 2_000]).is_ok()).count();
        self.sinks.iter().map(arrived).sum()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        for end in [&self.near, &self.far] {
            let name = end.file_name().unwrap().to_str().unwrap();
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// tcpdump at the far end.
pub(crate) struct Capture {
    child: Child,
    file: tempfile::TempPath,
}

/// A packet as it was captured: when, in nanoseconds, its mark, and the length of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) at: i64,
    pub(crate) mark: Mark,
    pub(crate) len: usize,
}

impl Capture {
    /// Captures all UDP that comes, until so many packets have come; `None`, and said why, without
    /// tcpdump.
    pub(crate) fn start(ends: &Ends, packets: usize) -> Option<Self> {
        if Command::new("tcpdump").arg("--version").output().is_err() {
            skip("needs the program tcpdump");
            return None;
        }
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let net = format!("--net={}", ends.far.display());
        let mut child = Command::new("nsenter")
            .args([&net, "tcpdump", "-i", "far", "-Q", "in", "-Z", "root", "-n", "-U"])
            .args(["--immediate-mode", "--time-stamp-precision=nano", "-c", &packets.to_string()])
            // Else its buffer has room for eight packets.
            .args(["-s", "2048", "-B", "8192"])
            .arg("-w")
            .arg(&file)
            // All but what asks for neighbours: nothing else may leave.
            .args(["udp", "and", "not", "dst", "port", "9"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_ready = |line: &std::io::Result<String>| {
            line.as_ref().is_ok_and(|line| line.contains("listening on"))
        };
        assert!(talk.any(|line| is_ready(&line)), "tcpdump listens");
        // It tells of its end; nobody may be told that nobody listens.
        std::thread::spawn(move || talk.for_each(drop));
        Some(Self { child, file })
    }

    /// What was captured, once all has come.
    pub(crate) fn end(mut self) -> Vec<Captured> {
        let since = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if since.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                let came = parse(&std::fs::read(&self.file).unwrap());
                panic!("too few packets came: {} {came:?}", came.len());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        parse(&std::fs::read(&self.file).unwrap())
    }
}

/// Reads a capture of Ethernet frames in libpcap's format, nanoseconds, in this machine's order; every
/// packet's checksums are right, and behind its mark its payload is what [`payloads`] filled in.
fn parse(capture: &[u8]) -> Vec<Captured> {
    let word = |at: usize| u32::from_ne_bytes(capture[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20) & 0xffff), (0xa1b2_3c4d, 1));
    let mut packets = Vec::new();
    let mut at = 24;
    while at < capture.len() {
        let (captured, len) = (word(at + 8) as usize, word(at + 12) as usize);
        let frame = &capture[at + 16..][..captured];
        assert_eq!(captured, len, "the packet is whole");
        let (header, ip) = match u16::from_be_bytes([frame[12], frame[13]]) {
            0x0800 => {
                let len = u16::from_be_bytes([frame[16], frame[17]]);
                assert_eq!(usize::from(len), frame.len() - 14);
                (20, 4)
            }
            0x86dd => (40, 6),
            other => panic!("a frame of type {other:#x}"),
        };
        let udp = &frame[14 + header..];
        assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len(), "IPv{ip}");
        let payload = &udp[8..];
        assert!(payload[Mark::LEN..].iter().all(|byte| *byte == FILL));
        packets.push(Captured {
            at: i64::from(word(at)) * 1_000_000_000 + i64::from(word(at + 4)),
            mark: Mark::parse(payload).expect("a mark"),
            len: payload.len(),
        });
        at += 16 + captured;
    }
    packets
}

const FILL: u8 = 0x5a;

/// Payloads of `len` bytes.
pub(crate) fn payloads(len: usize) -> Payloads {
    Payloads::new(FLOW, len, vec![FILL; len])
}

/// What an engine said of a train, and what the far end saw of it.
pub(crate) struct Told {
    pub(crate) left: Vec<Departure>,
    pub(crate) came: Vec<Captured>,
}

/// Packets of a train in [`run`]: so many alone, then so many pairs.
pub(crate) const ALONE: usize = 40;
pub(crate) const PAIRS: usize = 20;

/// So many lead them, which nobody counts.
const LEADS: usize = 2;

/// The longest train of [`run`].
pub(crate) const LONGEST: usize = LEADS + ALONE + 2 * PAIRS;

/// From one to the next.
pub(crate) const GAP: Nanos = Nanos::from_micros(300);

/// Sends two trains, of which the second is led by others, has [`ALONE`] packets by themselves and then
/// [`PAIRS`] due together, and captures both. Whatever every engine must keep is asserted here.
pub(crate) fn run(
    ends: &Ends,
    len: usize,
    open: impl FnOnce() -> Box<dyn TrainSender> + Send,
) -> Option<Told> {
    const FIRST: usize = 5;
    let packets = ALONE + 2 * PAIRS;
    let capture = Capture::start(ends, FIRST + LEADS + packets)?;
    let (first, due, before, left) = ends.near(|| {
        let mut engine = open();
        let mut train = |leads: usize, first: usize, slots: &[i64]| {
            engine.prepare(Numbers::new(first as u64, slots.len() - leads).led_by(leads));
            let start = monotonic() + Nanos::from_millis(2);
            let due: Vec<_> = slots.iter().map(|slot| start + Nanos(GAP.0 * slot)).collect();
            let mut left = vec![Departure::default(); slots.len()];
            engine.send(Course::unstopped(&due), &mut left);
            engine.collect(&mut left, Nanos::from_secs(2));
            assert_eq!(engine.failure().map(|error| error.to_string()), None);
            assert_eq!(engine.refused(), 0);
            (due[leads..].to_vec(), left[leads..].to_vec())
        };
        let (first, before) = train(0, 1_000, &(0..FIRST as i64).collect::<Vec<_>>());
        let alone = 0..(LEADS + ALONE) as i64;
        let pairs = (alone.end..).take(PAIRS).flat_map(|slot| [slot, slot]);
        let (due, left) = train(LEADS, 0, &alone.chain(pairs).collect::<Vec<_>>());
        let pairing = clock::pair();
        let to_real = pairing.real.as_nanos() - pairing.mono.as_nanos();
        let real = |due: Vec<dwell_units::Instant<Monotonic>>| {
            due.iter().map(|due| due.as_nanos() + to_real).collect::<Vec<_>>()
        };
        (real(first), real(due), before, left)
    });
    let came = capture.end();
    let numbers: Vec<_> = came.iter().map(|packet| packet.mark.seq).collect();
    let leads = (0..LEADS as u64).map(|n| LEAD | n);
    let expected: Vec<_> =
        (1_000..1_000 + FIRST as u64).chain(leads).chain(0..packets as u64).collect();
    assert_eq!(numbers, expected, "count and order");
    assert_eq!(ends.arrived(), FIRST + LEADS + packets, "checksums");
    assert!(came.iter().all(|packet| packet.len == len && packet.mark.flow == FLOW));
    assert!(before.iter().chain(&left).all(|left| left.app.is_some() && left.app <= left.done));
    let came = came[FIRST + LEADS..].to_vec();

    let gaps =
        |at: &dyn Fn(usize) -> i64| (1..ALONE).map(|n| at(n) - at(n - 1)).collect::<Vec<_>>();
    let seen = gaps(&|n| came[n].at);
    let told = gaps(&|n| left[n].kernel.or(left[n].app).unwrap().as_nanos());
    // On a busy machine many packets are late; what is told of them is right all the same.
    let off = median(seen.iter().zip(&told).map(|(seen, told)| (seen - told).abs()));
    assert!(off < 30_000, "half of the gaps differ by {off} ns or more from what is told of them");
    let late = |left: &[Departure], due: &[i64]| {
        let of =
            |(left, due): (&Departure, &i64)| left.kernel.or(left.app).unwrap().as_nanos() - *due;
        left.iter().zip(due).map(of).collect::<Vec<_>>()
    };
    let (first, late) = (late(&before, &first), late(&left, &due));
    // A stall before a train's first packet moves all of it.
    let least = *first.iter().chain(&late).min().unwrap();
    assert!(least >= 0, "a packet left {} ns before it was due", -least);
    assert!(least < 30_000, "no packet was punctual: {first:?}, {late:?}");
    // What holds one up moves those that follow, so that a stall of the machine counts once.
    let held_up = late.windows(2).filter(|pair| pair[1] - pair[0] >= 30_000).count();
    assert!(held_up <= packets / 20, "more than one of twenty packets was held up: {late:?}");
    Some(Told { left, came })
}

impl Told {
    /// The middle gap between two packets that were due together.
    pub(crate) fn pair_gap(&self) -> i64 {
        median(self.came[ALONE..].chunks(2).map(|pair| pair[1].at - pair[0].at))
    }

    /// Every packet has a stamp by the kernel, between the call that sent it and when it came, and
    /// near the latter.
    pub(crate) fn assert_stamped(&self) {
        for (n, (left, came)) in self.left.iter().zip(&self.came).enumerate() {
            let kernel = left.kernel.unwrap_or_else(|| panic!("a stamp of {n}: {:?}", self.left));
            assert!(left.app <= Some(kernel), "{n}: {left:?}");
            assert!(kernel.as_nanos() <= came.at, "{n}: {left:?} came at {}", came.at);
        }
        let way = self.left.iter().zip(&self.came);
        let way = median(way.map(|(left, came)| came.at - left.kernel.unwrap().as_nanos()));
        assert!(way < 50_000, "half of the packets took {way} ns or more from stamp to capture");
    }
}

/// Nearest rank.
pub(crate) fn median(values: impl IntoIterator<Item = i64>) -> i64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable();
    values[(values.len() - 1) / 2]
}

pub(crate) fn skip(reason: &str) {
    // The test runner names threads after their tests.
    println!("SKIP {}: {reason}", std::thread::current().name().unwrap_or("train"));
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {output:?}");
}
