//! Traffic of the original D-ITG 2.8.1 programs: ITGSend, and ITGRecv, which ITGSend requires.

mod log;
mod program;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufReader;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use dwell_engine::schedule::Gaps;
use dwell_io::clock::monotonic;
use dwell_protocol::ItgJob;
use dwell_record::{Placement, Scalar, Summary, Warning};
use dwell_units::{Nanos, Rate};
use serde_json::json;

use self::log::SentLog;
use self::program::{Program, find};
use super::load_summary;
use crate::Failure;

/// Port of the first flow; the others use the following ports.
const FIRST_PORT: u16 = 20_001;

/// TCP port on which ITGRecv accepts flows.
const SIGNALLING_PORT: u16 = 9_000;

/// Packets per write of ITGSend's log: few are lost when ITGSend is stopped, and writes are rare.
const LOG_BATCH: &str = "10";

/// Time-out for the start of all flows.
const START_TIMEOUT: Nanos = Nanos::from_secs(8);

/// Interval for checking whether the program has started.
const START_INTERVAL: Nanos = Nanos::from_millis(10);

/// Interval for checking for a stop.
const STOP_INTERVAL: Nanos = Nanos::from_millis(50);

/// Sends with ITGSend until stopped.
pub(crate) fn send(
    job: &ItgJob,
    stop: &AtomicBool,
    announce: &mut dyn FnMut(&str),
) -> Result<Summary, Failure> {
    let path = find("ITGSend")?;
    let itg_flows = ItgFlows::of(job)?;
    let dir = tempfile::tempdir().context("cannot create a directory for the log of ITGSend")?;
    let (script, log) = (dir.path().join("flows"), dir.path().join("log"));
    fs::write(&script, itg_flows.script()).context("cannot write the script of ITGSend")?;
    let arguments = [script.as_os_str(), "-l".as_ref(), log.as_os_str(), "-q".as_ref()];
    let arguments = arguments.into_iter().chain([LOG_BATCH.as_ref()]);
    let mut program = Program::start(&path, arguments, dir.path())?;
    let flows = job.flows as usize;
    let begun = |output: &str| output.matches("Started sending packets of flow").count() == flows;
    if wait_for(&mut program, stop, |program| begun(&program.output()))? {
        announce("ITGSend is sending");
        while !stop.load(Ordering::Relaxed) {
            if program.has_ended(STOP_INTERVAL) {
                return Err(program.unexpected_exit());
            }
        }
    }
    let output = program.end()?;
    let file = File::open(&log).context("ITGSend wrote no log")?;
    let sent = log::read(BufReader::new(file)).context("cannot read the log of ITGSend")?;
    Ok(itg_flows.summary(job, &output, &sent))
}

/// Receives with ITGRecv until stopped. Only ITGSend's log counts packets.
pub(crate) fn receive(
    stop: &AtomicBool,
    announce: &mut dyn FnMut(&str),
) -> Result<Summary, Failure> {
    let path = find("ITGRecv")?;
    let dir = tempfile::tempdir().context("cannot create a directory for the output of ITGRecv")?;
    let mut program = Program::start(&path, [], dir.path())?;
    if wait_for(&mut program, stop, |program| program.listens_by_tcp(SIGNALLING_PORT))? {
        announce("ITGRecv is listening");
        while !stop.load(Ordering::Relaxed) {
            if program.has_ended(STOP_INTERVAL) {
                return Err(program.unexpected_exit());
            }
        }
    }
    let output = program.end()?;
    let target = format!("tcp://0.0.0.0:{SIGNALLING_PORT}");
    let parameters = [("load", json!("sink")), ("generator", json!("itg"))];
    let engine = engine("ITGRecv", &output);
    Ok(load_summary(target, &engine, parameters, [], Placement::default()))
}

/// Waits until `begun`; returns `false` if stopped before.
fn wait_for(
    program: &mut Program,
    stop: &AtomicBool,
    begun: impl Fn(&Program) -> bool,
) -> Result<bool, Failure> {
    let until = monotonic() + START_TIMEOUT;
    while !begun(program) {
        if program.has_ended(START_INTERVAL) {
            return Err(program.unexpected_exit());
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if monotonic() > until {
            return Err(program.start_failure(START_TIMEOUT));
        }
    }
    Ok(true)
}

/// Returns name and version of a program from its output.
fn engine(name: &str, output: &str) -> String {
    let line = output.lines().find(|line| line.contains(" version "));
    line.map_or(name.to_owned(), |line| line.trim().replace(" version ", " "))
}

/// Parameters of ITGSend's flows.
struct ItgFlows {
    address: IpAddr,
    ip_bytes: u64,
    /// Mean gap between packets of one flow, in milliseconds.
    mean_ms: f64,
    gaps: Gaps,
    size: u64,
    flows: u32,
    seed: u64,
}

impl ItgFlows {
    fn of(job: &ItgJob) -> Result<Self, Failure> {
        let usage = |text: String| Failure::usage(text);
        let gaps = job
            .distribution
            .parse()
            .map_err(|error| usage(format!("invalid value for the distribution: {error}")))?;
        let resolved = (job.to.as_str(), FIRST_PORT)
            .to_socket_addrs()
            .map_err(|error| usage(format!("cannot resolve '{}': {error}", job.to)))?;
        let mut addresses = resolved.map(|address| address.ip());
        let address = addresses.find(|ip| ip.is_ipv6() == job.ipv6);
        let address = address
            .ok_or_else(|| usage(format!("'{}' has no address of the requested family", job.to)))?;
        let ip_bytes = job.size.0.saturating_add(if job.ipv6 { 48 } else { 28 });
        let all_pps = match job.rate {
            Rate::Bits(rate) => rate.0 as f64 / 8.0 / ip_bytes as f64,
            Rate::Packets(rate) => rate.as_f64(),
        };
        let mean_ms = 1e3 * f64::from(job.flows) / all_pps;
        if !(1..=1_000).contains(&job.flows) || !mean_ms.is_finite() {
            return Err(usage("flows must be 1 to 1000 and their rate above 0".into()));
        }
        let (size, flows, seed) = (job.size.0, job.flows, job.seed);
        Ok(Self { address, ip_bytes, mean_ms, gaps, size, flows, seed })
    }

    /// Returns ITGSend's script: one line of options per flow. Flows end with the program.
    fn script(&self) -> String {
        const MAX_DURATION_MS: u64 = 7 * 24 * 3_600 * 1_000;
        let mut lines = String::new();
        for flow in 0..self.flows {
            let port = u32::from(FIRST_PORT) + flow;
            let options = self.options(flow);
            let _ =
                writeln!(lines, "-a {} -rp {port} {options} -t {MAX_DURATION_MS}", self.address);
        }
        lines
    }

    /// Returns ITGSend's options for a flow: times in milliseconds, rates in packets per second.
    fn options(&self, flow: u32) -> String {
        let gaps = match self.gaps {
            Gaps::Constant => format!("-C {:.6}", 1e3 / self.mean_ms),
            Gaps::Poisson => format!("-E {:.6}", 1e3 / self.mean_ms),
            Gaps::Pareto(shape) => {
                format!("-V {shape} {:.6}", self.mean_ms * (shape - 1.0) / shape)
            }
        };
        format!("-T UDP {gaps} -c {} -s {:.9}", self.size, seed(self.seed, flow))
    }

    fn summary(&self, job: &ItgJob, output: &str, sent: &SentLog) -> Summary {
        let pps = sent.rate_pps();
        let bits = self.ip_bytes as f64 * 8.0;
        let payload = self.size as f64 * 8.0;
        let requested_pps = 1e3 * f64::from(self.flows) / self.mean_ms;
        let values = [
            ("packets", Scalar::Count(sent.packets())),
            ("flows", Scalar::Count(sent.flows() as u64)),
            ("rate_pps", Scalar::Real(pps)),
            ("rate_bps", Scalar::Real(pps * bits)),
            ("payload_rate_bps", Scalar::Real(pps * payload)),
        ];
        let parameters = [
            ("load", json!("traffic")),
            ("generator", json!("itg")),
            ("achieved_by", json!("ITGSend's own log")),
            ("itg", json!(self.options(0))),
            ("address", json!(self.address.to_string())),
            ("flows", json!(self.flows)),
            ("rate_pps", json!(requested_pps)),
            ("rate_bps", json!(requested_pps * bits)),
            ("payload_rate_bps", json!(requested_pps * payload)),
            ("distribution", json!(job.distribution)),
            ("payload_bytes", json!(self.size)),
            ("ip_bytes", json!(self.ip_bytes)),
            ("seed", json!(self.seed)),
        ];
        let silent = (self.flows as usize).saturating_sub(sent.flows());
        let target = format!("udp://{}:{FIRST_PORT}", job.to);
        let engine = engine("ITGSend", output);
        let mut summary = load_summary(target, &engine, parameters, values, Placement::default());
        if silent > 0 {
            summary.trust.warn(Warning::FlowRateUnknown(silent, self.flows, LOG_BATCH));
        }
        summary
    }
}

/// Returns the seed of a flow, above 0 and below 1 as ITGSend requires. Multiples of the golden
/// ratio keep neighbouring seeds far apart.
fn seed(seed: u64, flow: u32) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let number = (seed % 1_000_000) * 1_000 + u64::from(flow) + 1;
    (number as f64 * GOLDEN).fract().clamp(1e-6, 1.0 - 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_units::Bytes;

    fn job(distribution: &str) -> ItgJob {
        ItgJob {
            to: "127.0.0.1".into(),
            flows: 2,
            rate: "2Mbit/s".parse().unwrap(),
            distribution: distribution.into(),
            size: Bytes(472),
            seed: 7,
            ipv6: false,
        }
    }

    #[test]
    fn itg_options_keep_the_mean_gap() {
        // 500 B of IP at 1 Mbit/s: 250 packets per second, 4 ms apart.
        for (distribution, options) in [
            ("constant", "-C 250.000000"),
            ("poisson", "-E 250.000000"),
            ("pareto(1.5)", "-V 1.5 1.333333"),
        ] {
            let script = ItgFlows::of(&job(distribution)).unwrap().script();
            let lines: Vec<_> = script.lines().collect();
            assert_eq!(lines.len(), 2);
            let first = format!("-a 127.0.0.1 -rp 20001 -T UDP {options} -c 472 -s 0.");
            assert!(lines[0].starts_with(&first), "{script}");
            assert!(lines[1].contains("-rp 20002"), "{script}");
        }
    }

    #[test]
    fn seeds_of_flows_differ_and_itg_accepts_them() {
        let mut all: Vec<_> = [0, 1, 2, u64::MAX]
            .into_iter()
            .flat_map(|one| (0..1_000).map(move |flow| format!("{:.9}", seed(one, flow))))
            .collect();
        assert!(all.iter().all(|seed| seed.starts_with("0.") && seed != "0.000000000"));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4_000);
    }

    #[test]
    fn invalid_itg_job_is_refused_with_reason() {
        let still = ItgJob { flows: 0, ..job("constant") };
        let nowhere = ItgJob { to: "no.such.host.invalid".into(), ..job("constant") };
        let other = ItgJob { ipv6: true, ..job("constant") };
        for (job, why) in
            [(still, "1 to 1000"), (nowhere, "resolve"), (other, "family"), (job("x"), "pareto")]
        {
            let refused = ItgFlows::of(&job).err().expect("refused");
            assert!(format!("{:#}", refused.error).contains(why), "{job:?}");
        }
    }
}
