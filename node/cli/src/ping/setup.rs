//! Checks a job and fills in its defaults. Everything that needs no socket is checked here, so that
//! a usage error ends the command before anything is sent.

use std::net::IpAddr;

use dwell_engine::pinger::{Config, ProbeSchedule};
use dwell_engine::protocol::{PayloadError, PayloadLimits, ProtocolSpec, Scheme, Session};
use dwell_protocol::{Pattern, PingJob, PingParameters, ProbeStamps};
use dwell_units::Nanos;

use super::driver_stamps;
use crate::protocols::urls_with;
use crate::{Failure, Target, parameter, placement};

/// Origin of probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) source: Option<IpAddr>,
    pub(super) interface: Option<String>,
}

/// A checked job with all defaults filled in.
#[derive(Debug)]
pub(super) struct PingSetup {
    pub(super) target: Target,
    pub(super) config: Config,
    /// Payload size in bytes, as the protocol counts it.
    pub(super) size: usize,
    pub(super) pattern: Pattern,
    pub(super) origin: Origin,
    pub(super) authenticated: bool,
}

impl PingSetup {
    pub(super) fn new(job: &PingJob) -> Result<Self, Failure> {
        let target: Target = job
            .target
            .parse()
            .map_err(|error| Failure::usage(format!("invalid target: {error}")))?;
        let (scheme, spec) = (target.scheme, target.scheme.spec());
        if job.key_file.is_some() && spec.authentication.is_none() {
            let able = urls_with(|spec| spec.authentication.is_some());
            return Err(Failure::usage(format!(
                "--key-file is for {able} only; {scheme}:// has no authenticated mode"
            )));
        }
        let authenticated = spec.authentication.is_some()
            && (job.key_file.is_some() || std::env::var_os("DWELL_KEY").is_some());
        placement::check(&job.place)?;
        driver_stamps::check(job)?;
        let parameters = &job.parameters;
        parameters.check().map_err(|error| parameter::usage::<PingParameters>(&error))?;
        check_clients(job, scheme)?;
        let requested = parameters.size.map(|size| size.0);
        let size = match job.path {
            Some(slots) => path_size(scheme, requested, authenticated, slots)?,
            None => size(scheme, requested, authenticated)?,
        };
        let config = config(parameters, scheme)?;
        Ok(Self {
            target,
            config,
            size,
            pattern: parameters.pattern,
            origin: origin(job.from.as_deref()),
            authenticated,
        })
    }

    /// Whether the timing loop sleeps most of the time, so that real-time priority starves no other
    /// program: it spins for 150 us before each departure.
    pub(super) fn mostly_sleeps(&self) -> bool {
        const MIN_SLEEP_INTERVAL: Nanos = Nanos::from_millis(1);
        matches!(self.config.departures, ProbeSchedule::Open { interval } if interval >= MIN_SLEEP_INTERVAL)
    }

    /// Whether probes wait for replies.
    pub(super) fn is_closed_loop(&self) -> bool {
        matches!(self.config.departures, ProbeSchedule::Closed { .. })
    }
}

/// Checks that what is requested is possible with several clients.
fn check_clients(job: &PingJob, scheme: Scheme) -> Result<(), Failure> {
    let parameters = &job.parameters;
    if parameters.clients() == 1 {
        return Ok(());
    }
    if !scheme.spec().allows_clients() {
        let able = urls_with(ProtocolSpec::allows_clients);
        let message = format!("--clients is for {able} only; {scheme}:// has one client");
        return Err(Failure::usage(message));
    }
    let alone = [
        (parameters.stamps == ProbeStamps::Driver, "--stamps driver"),
        (parameters.is_explained(), "--explain"),
    ];
    match alone.iter().find(|(is_requested, _)| *is_requested) {
        Some((_, what)) => Err(Failure::usage(format!(
            "--clients cannot be used with {what}, which has one client"
        ))),
        None => Ok(()),
    }
}

/// Checks the requested payload size, or returns the default.
fn size(scheme: Scheme, requested: Option<u64>, authenticated: bool) -> Result<usize, Failure> {
    let limits = scheme.spec().payload_limits(authenticated);
    let size = requested.unwrap_or(limits.default);
    let key = if authenticated { " with a key" } else { "" };
    limits.check(size).map_err(|error| {
        let right = match error {
            PayloadError::Fixed(only) => {
                format!("a {scheme}:// message always has {only} bytes; leave -s out")
            }
            PayloadError::Either(plain, timed) => format!(
                "a {scheme}:// message has {plain} bytes, or {timed} with the times of a device"
            ),
            PayloadError::TooSmall(min) => format!("{scheme}://{key} needs at least {min} bytes"),
            PayloadError::TooLarge(max) => format!("at most {max} bytes fit a datagram"),
            PayloadError::Between(min, next) => format!(
                "beyond its {min} bytes a {scheme}:// message grows by TLVs of at least {} bytes; \
                 use {min} or {next} and more",
                next - min
            ),
        };
        Failure::usage(format!("invalid value {size} for -s: {right}"))
    })?;
    Ok(size as usize)
}

/// Checks the size of a packet with slots for relays; relays do not extend it.
fn path_size(
    scheme: Scheme,
    requested: Option<u64>,
    authenticated: bool,
    slots: u8,
) -> Result<usize, Failure> {
    if !scheme.spec().telemetry {
        let able = urls_with(|spec| spec.telemetry);
        return Err(Failure::usage(format!(
            "--path is for {able} only; {scheme}:// has no room for relay delays"
        )));
    }
    if authenticated {
        return Err(Failure::usage(
            "--path cannot be used with a key: a relay on the path cannot sign its delays",
        ));
    }
    let min = Session::size_of_path(usize::from(slots)) as u64;
    let default = min + Session::SOCKET_DROPS_TLV as u64;
    let size = size(scheme, Some(requested.unwrap_or(default)), false)?;
    let limits = PayloadLimits { min, default, ..*scheme.spec().payload_limits(false) };
    limits.check(size as u64).map_err(|_| {
        let next = min + limits.min_extra;
        Failure::usage(format!(
            "invalid value {size} for -s: --path {slots} needs {min} bytes, or {next} and more"
        ))
    })?;
    Ok(size)
}

fn config(parameters: &PingParameters, scheme: Scheme) -> Result<Config, Failure> {
    let defaults = scheme.spec().defaults;
    let PingParameters { closed_loop, pause, interval, .. } = *parameters;
    let closed = closed_loop || defaults.closed_loop;
    if pause.is_some() && !closed {
        return Err(Failure::usage("--pause is for --closed-loop; in open loop use -i"));
    }
    let departures = if closed {
        // -i sets a spacing instead of the pause.
        let default_pause = if interval.is_none() { defaults.pause } else { Nanos::ZERO };
        ProbeSchedule::Closed {
            pause: pause.unwrap_or(default_pause),
            spacing: interval.unwrap_or(Nanos::ZERO),
        }
    } else {
        let interval = interval.unwrap_or(Nanos::from_secs(1));
        if interval == Nanos::ZERO {
            return Err(Failure::usage(
                "invalid value 0 for -i: in open loop probes need an interval, like -i 10us; \
                 --closed-loop sends as fast as replies come",
            ));
        }
        ProbeSchedule::Open { interval }
    };
    let config = Config {
        departures,
        count: parameters.count,
        duration: parameters.duration,
        timeout: parameters.timeout(),
        warm_up: parameters.warm_up.unwrap_or(defaults.warm_up),
        warm_up_interval: defaults.warm_up_interval,
    };
    if !config.fits_window() {
        return Err(Failure::usage(format!(
            "-W {} with this -i keeps more than {} probes in flight; use a shorter -W",
            config.timeout,
            Config::MAX_WINDOW
        )));
    }
    Ok(config)
}

/// Parses `-I`: an address, otherwise an interface name.
fn origin(from: Option<&str>) -> Origin {
    let Some(text) = from else { return Origin::default() };
    match text.parse() {
        Ok(address) => Origin { source: Some(address), interface: None },
        Err(_) => Origin { source: None, interface: Some(text.to_owned()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_header_fields_are_refused() {
        let setup = |parameters: PingParameters| {
            PingSetup::new(&PingJob { parameters, ..PingJob::to("stamp://127.0.0.1") })
        };
        let wrong = |parameters| setup(parameters).unwrap_err().error.to_string();
        let usual = PingParameters::default();
        assert!(setup(PingParameters { dscp: Some(63), ttl: Some(1), ..usual.clone() }).is_ok());
        let dscp = wrong(PingParameters { dscp: Some(64), ..usual.clone() });
        assert!(dscp.contains("64 for --dscp: 0 to 63"));
        assert!(wrong(PingParameters { ttl: Some(0), ..usual }).contains("--ttl"));
    }
}
