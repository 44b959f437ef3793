//! The engine in the network driver: an XDP program answers the services that it can, beside the
//! sockets, which answer the rest. A supervising thread follows addresses and clock.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use dwell_engine::reflector::{
    DriverService, EarlierReplies, ReplyLoss, SendCounts, departure_bias, preferred_mode,
    unanswered_ports,
};
use dwell_io::bpf::{
    BpfError, DriverClock, DriverCounters, DriverLink, DriverSessions, XdpMode, XdpReflector,
    XdpReflectorSpec,
};
use dwell_io::clock::{self, StepWatch, monotonic};
use dwell_io::interface::{self, Interface};
use dwell_io::machine;
use dwell_protocol::{DriverMode, ReflectEngine, ReflectJob};
use dwell_record::{Scalar, Warning};
use dwell_units::Nanos;
use dwell_wire::timestamp::ErrorEstimate;

use super::counters::Counters;
use super::destinations::{Addresses, check_addresses, number_services, resolve};
use super::{Listen, STOP_CHECK_INTERVAL};
use crate::{Exit, Failure};

/// Interval between reads of addresses and of the interface's state.
const REFRESH_INTERVAL: Nanos = Nanos::from_secs(1);

/// Number of consecutive failed reads after which the reflector ends.
const MAX_REFRESH_FAILURES: u32 = 10;

/// Maximum number of recorded warnings about lost replies.
const MAX_LOSS_WARNINGS: usize = 16;

/// Default MTU of Ethernet, if the interface does not state its own.
const ETHERNET_MTU: u32 = 1_500;

/// Why the engine does not start.
#[derive(Debug)]
pub(super) enum StartError {
    /// This machine, its interface or this build has no XDP.
    NoXdp(anyhow::Error),
    /// Another failure, such as a usage error or a missing privilege.
    Failed(Failure),
}

impl StartError {
    fn into_failure(self, engine: ReflectEngine) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::NoXdp(error) => unavailable(engine, "use --engine socket", error),
        }
    }

    /// Returns the reason to answer by sockets alone.
    ///
    /// # Errors
    /// The engine must be in the driver, or the reason is not a lack of XDP.
    pub(super) fn into_fallback(self, engine: ReflectEngine) -> Result<String, Failure> {
        match self {
            Self::NoXdp(error) if engine == ReflectEngine::Auto => {
                Ok(format!("{error:#}").replace('\n', "; "))
            }
            other => Err(other.into_failure(engine)),
        }
    }
}

impl<E: Into<Failure>> From<E> for StartError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Refuses options that need another engine; needs no privilege.
pub(super) fn check(job: &ReflectJob) -> Result<(), Failure> {
    if job.engine != ReflectEngine::Socket {
        return Ok(());
    }
    let given = [("--interface", job.interface.is_some()), ("--xdp-mode", job.xdp_mode.is_some())];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            Err(Failure::usage(format!("{option} is for --engine xdp and --engine auto")))
        }
        None => Ok(()),
    }
}

/// The program and its services.
pub(super) struct DriverEngine {
    engine: ReflectEngine,
    program: XdpReflector,
    interface: Interface,
    services: Vec<DriverService>,
    mode: XdpMode,
    reason: String,
    /// Run time of the program for the longest packet.
    run_time: Nanos,
    /// MTU for which `run_time` holds.
    timed_mtu: u32,
    /// Only the mode of `--xdp-mode` is permitted.
    is_forced: bool,
    /// Generic mode may follow native mode later.
    may_change_mode: bool,
    /// The program recognises datagrams that the kernel merged.
    recognises_merged: bool,
    /// The machine has more addresses than the program has room for.
    has_too_many_addresses: bool,
    /// The interface does not exist any more.
    is_gone: bool,
    warnings: Vec<Warning>,
}

/// What the engine did, for the summary.
#[derive(Debug)]
pub(super) struct DriverReport {
    pub(super) engine: String,
    /// Why the engine has its mode.
    pub(super) reason: String,
    pub(super) departure_bias: Nanos,
    pub(super) warnings: Vec<Warning>,
}

/// Replies of the program to sessions that reach the socket of the same service.
#[derive(Debug)]
struct ProgramReplies {
    sessions: DriverSessions,
    service: u32,
}

impl EarlierReplies for ProgramReplies {
    fn count(&self, from: SocketAddr, ssid: u16) -> u32 {
        self.sessions.replies(self.service, from, ssid)
    }
}

impl DriverEngine {
    /// Loads the program and numbers the services that it answers.
    pub(super) fn load(
        job: &ReflectJob,
        listens: &mut [Listen],
        own_ports: Option<&[u16]>,
    ) -> Result<Self, StartError> {
        let interface = find_interface(job)?;
        let services = number_services(job.engine, listens)?;
        let addresses = interface::addresses()?;
        check_addresses(listens, &addresses)?;
        resolve(job.engine, &services, &interface, &addresses)?;
        let Some(mac) = interface::ethernet_address(interface.index)? else {
            let error = anyhow::anyhow!("interface {} has no Ethernet frames", interface.name);
            return Err(StartError::NoXdp(error));
        };
        let mut spec = XdpReflectorSpec {
            interface: interface.index,
            link: DriverLink { mtu: interface.mtu.unwrap_or(ETHERNET_MTU), mac },
            is_loopback: interface.name == "lo",
            stateless: job.stateless,
            clock: machine::boot_id().and_then(|id| id[..12].try_into().ok()),
            unanswered_ports: unanswered_ports(own_ports),
            recognise_merged: true,
        };
        let mut program = XdpReflector::load(&spec);
        if matches!(program, Err(BpfError::Refused { .. } | BpfError::NoFunction(_))) {
            spec.recognise_merged = false;
            program = XdpReflector::load(&spec);
        }
        let mut program = program.map_err(|error| not_loaded(job.engine, error))?;
        let run_time = program.run_time().map_err(|error| match error.is_unsupported() {
            true => not_loaded(job.engine, error),
            false => StartError::Failed(error.into()),
        })?;
        let preferred = preferred_mode(interface.driver.as_deref());
        let (mode, reason) = match job.xdp_mode {
            Some(DriverMode::Native) => (XdpMode::Native, "--xdp-mode native"),
            Some(DriverMode::Generic) => (XdpMode::Generic, "--xdp-mode generic"),
            None if preferred.native => (XdpMode::Native, preferred.reason),
            None => (XdpMode::Generic, preferred.reason),
        };
        Ok(Self {
            engine: job.engine,
            program,
            interface,
            services,
            mode,
            reason: reason.to_owned(),
            run_time,
            timed_mtu: spec.link.mtu,
            is_forced: job.xdp_mode.is_some() && job.engine == ReflectEngine::Xdp,
            may_change_mode: job.engine == ReflectEngine::Auto,
            recognises_merged: spec.recognise_merged,
            has_too_many_addresses: false,
            is_gone: false,
            warnings: Vec::new(),
        })
    }

    /// Replies of the program to sessions of the service with this number.
    pub(super) fn earlier(&self, service: u32) -> Result<Arc<dyn EarlierReplies>, Failure> {
        let sessions = self.program.sessions()?;
        Ok(Arc::new(ProgramReplies { sessions, service }))
    }

    /// Attaches the program, in generic mode if the driver refuses the native one.
    pub(super) fn attach(&mut self) -> Result<(), StartError> {
        self.refresh()?;
        self.refresh_clock()?;
        let mut outcome = self.program.attach(self.mode);
        if self.mode == XdpMode::Native
            && !self.is_forced
            && let Err(error @ BpfError::Attach { error: cause, .. }) = &outcome
            && !error.is_occupied()
        {
            self.reason = format!("native XDP on {} failed: {cause}", self.interface.name);
            self.mode = XdpMode::Generic;
            outcome = self.program.attach(self.mode);
        }
        outcome.map_err(|error| self.not_attached(error))?;
        if self.mode == XdpMode::Generic && !self.recognises_merged {
            self.warn(Warning::MergedUnrecognised(self.interface.name.clone()));
        }
        self.refresh_clock()?;
        Ok(())
    }

    fn warn(&mut self, warning: Warning) {
        crate::say(&format!("dwell: {warning}"));
        self.warnings.push(warning);
    }

    fn not_attached(&self, error: BpfError) -> StartError {
        let name = &self.interface.name;
        if error.is_occupied() {
            let error = anyhow::Error::new(error).context(format!(
                "interface {name} is unavailable; end the program that attached it, or use --engine \
                 socket"
            ));
            return Failure { exit: Exit::Failed, error }.into();
        }
        if error.is_permission() {
            return not_loaded(self.engine, error);
        }
        StartError::NoXdp(anyhow::Error::new(error).context(format!("interface {name} has no XDP")))
    }

    /// One line about the mode and its reason.
    pub(super) fn description(&self) -> String {
        format!("{} on {}: {}", engine_name(self.mode), self.interface.name, self.reason)
    }

    /// Follows the clock, addresses, the interface and failed replies until stopped. A step of the
    /// clock ends a wait at once.
    pub(super) fn supervise(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let mut steps = StepWatch::new()?;
        let mut refresh_due = monotonic() + REFRESH_INTERVAL;
        let mut failed = 0;
        let (mut loss, mut seen) = (ReplyLoss::default(), self.send_counts()?);
        while !stop.load(Ordering::Relaxed) {
            let is_stepped = steps.wait(STOP_CHECK_INTERVAL)?;
            self.refresh_clock()?;
            if is_stepped {
                continue;
            }
            let now = monotonic();
            if now >= refresh_due {
                refresh_due = now + REFRESH_INTERVAL;
                failed = self.retry(failed)?;
            }
            let counts = self.send_counts()?;
            let since = SendCounts {
                replies: counts.replies.saturating_sub(seen.replies),
                failures: counts.failures.saturating_sub(seen.failures),
            };
            seen = counts;
            if let Some(lost) = loss.observe(since) {
                self.note_lost_replies(lost)?;
                seen = self.send_counts()?;
            }
        }
        Ok(())
    }

    /// Refreshes after `failed` consecutive failures; returns their new number. The kernel may fail
    /// for a while, such as for lack of memory or descriptors.
    fn retry(&mut self, failed: u32) -> Result<u32, Failure> {
        let Err(failure) = self.refresh() else { return Ok(0) };
        if self.is_gone || failed + 1 >= MAX_REFRESH_FAILURES {
            return Err(failure);
        }
        if failed == 0 {
            crate::say(&format!("dwell: {:#}; trying again", failure.error));
        }
        Ok(failed + 1)
    }

    fn note_lost_replies(&mut self, lost: SendCounts) -> Result<(), Failure> {
        let mut remedy = String::new();
        if self.interface.driver.as_deref() == Some("veth") && self.mode == XdpMode::Native {
            remedy.push_str(": its peer has no XDP program");
        }
        if self.may_change_mode && self.mode == XdpMode::Native {
            let attached = self.program.attach(XdpMode::Generic);
            attached.map_err(|error| self.not_attached(error).into_failure(self.engine))?;
            self.mode = XdpMode::Generic;
            self.refresh_clock()?;
            self.reason = "native replies were lost".to_owned();
            remedy.push_str("; changed to generic XDP");
        } else if self.mode == XdpMode::Native {
            remedy.push_str("; use --xdp-mode generic");
        }
        if self.warnings.len() < MAX_LOSS_WARNINGS {
            let (interface, SendCounts { replies, failures }) = (self.interface.name.clone(), lost);
            self.warn(Warning::DriverRepliesLost(interface, failures, replies, remedy));
        }
        Ok(())
    }

    /// Without failures if the interface is gone.
    fn send_counts(&self) -> Result<SendCounts, Failure> {
        let counts = (0..self.services.len() as u32).map(|number| self.program.counters(number));
        let counts = counts.collect::<Result<Vec<_>, _>>()?;
        let replies = counts.iter().map(|counters| counters.replies).sum();
        let failures = interface::send_failures(self.interface.index).unwrap_or(0);
        Ok(SendCounts { replies, failures })
    }

    /// Counters of the service with this number.
    pub(super) fn counters(&self, service: u32) -> Result<DriverCounters, Failure> {
        Ok(self.program.counters(service)?)
    }

    /// Detaches the program, whose counters are then final.
    pub(super) fn detach(&mut self) -> Result<(), Failure> {
        Ok(self.program.detach()?)
    }

    /// Ends the engine.
    pub(super) fn end(self) -> DriverReport {
        DriverReport {
            engine: engine_name(self.mode).to_owned(),
            departure_bias: self.departure_bias(),
            reason: self.reason,
            warnings: self.warnings,
        }
    }

    fn departure_bias(&self) -> Nanos {
        departure_bias(self.mode == XdpMode::Native, self.run_time)
    }

    /// Follows addresses, MTU and Ethernet address.
    ///
    /// # Errors
    /// The interface is gone, or the kernel did not answer.
    fn refresh(&mut self) -> Result<(), Failure> {
        let name = &self.interface.name;
        let state = interface::link_state(self.interface.index)
            .with_context(|| format!("cannot read the state of interface {name}"))?;
        let Some(state) = state else {
            self.is_gone = true;
            return Err(Failure::from(anyhow::anyhow!(
                "interface {name} is gone, and the XDP program with it; start the reflector again \
                 when it is back"
            )));
        };
        if let Some(mac) = state.ethernet {
            let mtu = state.mtu.unwrap_or(ETHERNET_MTU);
            self.program.set_link(DriverLink { mtu, mac })?;
            // The run time grows at most in proportion to the length.
            if mtu > self.timed_mtu {
                let scaled = i128::from(self.run_time.0) * i128::from(mtu);
                let longer = scaled / i128::from(self.timed_mtu.max(1)) + 1;
                self.run_time = Nanos(i64::try_from(longer).unwrap_or(i64::MAX));
                self.timed_mtu = mtu;
            }
        }
        let all = interface::addresses().context("cannot read the addresses of this machine")?;
        match resolve(self.engine, &self.services, &self.interface, &all) {
            Ok(Addresses { destinations, own }) => {
                self.has_too_many_addresses = false;
                self.program.set_own_addresses(&own)?;
                self.program.set_destinations(&destinations)?;
            }
            Err(failure) if !self.has_too_many_addresses => {
                self.has_too_many_addresses = true;
                crate::say(&format!("dwell: {}; new addresses have no XDP replies", failure.error));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// The error of T3 includes the time until the reply leaves.
    fn refresh_clock(&mut self) -> Result<(), Failure> {
        let utc_error = clock::utc_error();
        let reading = Nanos::from_micros(1);
        let bound = utc_error.unwrap_or(reading) + self.departure_bias();
        let estimate = ErrorEstimate::covering(bound, utc_error.is_some());
        let tai_offset = clock::tai_offset();
        Ok(self
            .program
            .set_clock(DriverClock { tai_offset, error_estimate: estimate.to_bits() })?)
    }
}

fn engine_name(mode: XdpMode) -> &'static str {
    match mode {
        XdpMode::Native => "xdp native",
        XdpMode::Generic => "xdp generic",
    }
}

/// The error of a program that is not loaded or attached. Without privilege it is unknown whether the
/// machine has XDP.
fn not_loaded(engine: ReflectEngine, error: BpfError) -> StartError {
    if error.is_permission() {
        let remedy = "run it as root (sudo), or use --engine socket";
        return StartError::Failed(unavailable(engine, remedy, error.into()));
    }
    StartError::NoXdp(error.into())
}

fn unavailable(engine: ReflectEngine, remedy: &str, error: anyhow::Error) -> Failure {
    let engine = engine.name();
    let error = error.context(format!("--engine {engine} is unavailable here; {remedy}"));
    Failure { exit: Exit::Unsupported, error }
}

fn find_interface(job: &ReflectJob) -> Result<Interface, Failure> {
    if let (None, Some(prober)) = (&job.interface, &job.prober) {
        return interface_towards(prober);
    }
    let all = interface::all()?;
    let names = || all.iter().map(|found| found.name.as_str()).collect::<Vec<_>>().join(", ");
    let Some(name) = &job.interface else {
        return Err(Failure::usage(format!(
            "--engine {} needs --interface IF; interfaces here: {}",
            job.engine.name(),
            names()
        )));
    };
    let Some(found) = all.iter().find(|found| found.name == *name) else {
        return Err(Failure::usage(format!(
            "interface {name} does not exist; interfaces here: {}",
            names()
        )));
    };
    if !found.up {
        return Err(Failure::from(anyhow::anyhow!(
            "interface {name} is down; run: ip link set {name} up"
        )));
    }
    Ok(found.clone())
}

/// The interface by which this machine reaches a host.
fn interface_towards(host: &str) -> Result<Interface, Failure> {
    let no_route = || Failure::from(anyhow::anyhow!("no interface leads to {host}"));
    let resolved = (host, 0).to_socket_addrs();
    let address = resolved.ok().and_then(|mut all| all.next()).ok_or_else(no_route)?;
    interface::towards(address)?.ok_or_else(no_route)
}

/// Values of a summary: counters of the program by protocol and outcome, and the bias of T3.
pub(super) fn values(
    opened: &[(Listen, Arc<Counters>)],
    report: &DriverReport,
) -> BTreeMap<String, Option<Scalar>> {
    let mut values = BTreeMap::new();
    for (listen, counters) in opened {
        let Some(counted) = counters.driver() else { continue };
        let DriverCounters {
            replies,
            to_socket,
            malformed,
            bad_checksum,
            limited,
            looping,
            silenced,
        } = counted;
        let outcomes = [
            ("replies", replies),
            ("to_socket", to_socket),
            ("malformed", malformed),
            ("bad_checksum", bad_checksum),
            ("limited", limited),
            ("looping", looping),
            ("silenced", silenced),
        ];
        for (outcome, count) in outcomes {
            let value = values.entry(format!("driver_{}_{outcome}", listen.scheme)).or_insert(0);
            *value += count;
        }
    }
    let values = values.into_iter().map(|(name, count)| (name, Some(Scalar::Count(count))));
    let bias = report.departure_bias.0.cast_unsigned();
    values.chain([("t3_bias_ns".to_owned(), Some(Scalar::Count(bias)))]).collect()
}
