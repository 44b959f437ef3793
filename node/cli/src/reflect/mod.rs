//! `dwell reflect`: answers probes.
//!
//! `udp` and `tcp` connect the engine's reflectors to sockets; `xdp` replies in the network driver at
//! `destinations`.
//! This file parses the command line, opens the sockets and starts the threads; `report` prints the
//! counters at the end.

mod counters;
mod destinations;
mod report;
mod slots;
mod tcp;
mod udp;
mod xdp;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_engine::protocol::{ProbeTransport, Reflection};
use dwell_engine::reflector::{EarlierReplies, RateLimits, Responder, ResponderConfig};
use dwell_io::cpu::{self, Placement};
use dwell_io::gate::Shutter;
use dwell_io::interface::{self, Interface};
use dwell_io::machine;
use dwell_io::port::{StampRequest, Wait};
use dwell_io::process;
use dwell_protocol::{Limit, ReflectEngine, ReflectJob, Stamps, ThreadPlacement};
use dwell_record::{Summary, Warning};
use dwell_units::{Nanos, PacketRate};
use dwell_wire::hmac::SecretKey;

use crate::{Exit, Failure, Scheme, Target, placement, protocols, secret};
use counters::Counters;
use xdp::DriverEngine;

/// Interval between checks of the stop flag.
const STOP_CHECK_INTERVAL: Nanos = Nanos::from_millis(100);

/// Default of `--limit`, per source.
const DEFAULT_LIMITS: RateLimits = RateLimits {
    local: PacketRate::from_millipps(100_000_000),
    global: PacketRate::from_millipps(10_000_000),
};

/// Maximum of `--replay-window`. 4,096 sessions then take 4 MiB of bitmaps.
const MAX_REPLAY_WINDOW: u32 = 4_096;

/// Arguments of `reflect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 stopped by SIGINT or SIGTERM, 1 a socket cannot be opened or failed, 2 usage, \
4 not supported or not permitted here.")]
#[command(mut_arg("urls", |urls| urls.help(protocols::reflect_urls_help())))]
pub struct Args {
    /// The job.
    #[command(flatten)]
    job: ReflectJob,

    /// Print the summary as one JSON object at the end
    #[arg(long)]
    json: bool,

    /// Print only errors and the summary
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// A socket to open.
#[derive(Clone, Debug)]
struct Listen {
    url: String,
    scheme: Scheme,
    address: SocketAddr,
    limit: Option<RateLimits>,
    /// Key of the authenticated mode.
    key: Option<SecretKey>,
    /// Number at the engine in the driver, if that answers it.
    service: Option<u32>,
}

impl Listen {
    /// Whether the kernel answers it, as the program in the driver does not run.
    fn is_left_to_kernel(&self) -> bool {
        !self.scheme.spec().has_reflector() && self.service.is_none()
    }
}

/// A socket that answers. Polled, or run on its own thread.
trait Service: Send {
    /// Answers at most one message. Returns whether there was one.
    fn turn(&mut self, wait: Wait) -> io::Result<bool>;

    /// Ends a turn with an unbounded wait; `None` if waits are bounded.
    fn shutter(&self) -> io::Result<Option<Shutter>>;

    /// Updates the counters at the end.
    fn end(&mut self) {}
}

/// Opened sockets, and the services that they answer.
#[derive(Default)]
struct Sockets {
    opened: Vec<(Listen, Arc<Counters>)>,
    services: Vec<Box<dyn Service>>,
}

/// The outcome of a reflector.
pub(crate) struct ReflectOutcome {
    pub(crate) summary: Summary,
    /// Failure that ended it.
    pub(crate) failure: Option<Failure>,
    opened: Vec<(Listen, Arc<Counters>)>,
}

/// Answers until stopped. When all sockets are open, calls `ready` with a line about the engine in the
/// driver, if any, and one per socket.
pub(crate) fn perform(
    job: &ReflectJob,
    stop: &Arc<AtomicBool>,
    ready: &mut dyn FnMut(Option<&str>, &[String]),
) -> Result<ReflectOutcome, Failure> {
    let place = job.place;
    xdp::check(job)?;
    let mut listens = listens(job)?;
    placement::check(&place)?;
    read_keys(job, &mut listens)?;
    if let Some(window) = job.replay_window {
        if !(1..=MAX_REPLAY_WINDOW).contains(&window) {
            return Err(Failure::usage(format!(
                "invalid value {window} for --replay-window: 1 to {MAX_REPLAY_WINDOW}"
            )));
        }
        if listens.iter().all(|listen| listen.key.is_none()) {
            return Err(Failure::usage(
                "--replay-window needs a key: a sequence number that is not authenticated can be \
                 forged; give --key-file FILE, or set the environment variable DWELL_KEY",
            ));
        }
    }
    let own_ports: Arc<[u16]> = match job.allow_any_port {
        true => [].into(),
        // Ports of TCP connections do not matter to datagrams.
        false => listens
            .iter()
            .filter(|listen| listen.scheme.spec().transport == ProbeTransport::Udp)
            .map(|listen| listen.address.port())
            .collect(),
    };
    let (mut driver, mut fallback) = (None, None);
    if job.engine.is_in_driver() {
        let unanswered = (!job.allow_any_port).then_some(&*own_ports);
        match DriverEngine::load(job, &mut listens, unanswered) {
            Ok(loaded) => driver = Some(loaded),
            Err(error) => fallback = Some(error.into_fallback(job.engine)?),
        }
    }
    let Sockets { mut opened, mut services } = open_all(job, listens, &own_ports, driver.as_ref())?;
    if let Some(loaded) = &mut driver
        && let Err(error) = loaded.attach()
    {
        fallback = Some(error.into_fallback(job.engine)?);
        driver = None;
        // The addresses have to be free again.
        drop(services);
        let listens = opened.into_iter().map(|(listen, _)| listen).collect();
        Sockets { opened, services } = open_all(job, listens, &own_ports, None)?;
    }
    let fallback = fallback.map(Warning::XdpUnavailable);
    fallback.iter().for_each(|warning| crate::say(&format!("dwell: {warning}")));
    let lines: Vec<_> = opened.iter().map(|(listen, _)| listen.to_string()).collect();
    ready(driver.as_ref().map(DriverEngine::description).as_deref(), &lines);
    let (placement, mut failure) = match serve_all(services, driver.as_mut(), place, stop) {
        Ok(placement) => (placement, None),
        Err(failure) => (Placement::default(), Some(failure)),
    };
    let mut driver_report = None;
    if let Some(mut driver) = driver {
        failure = failure.or(driver.detach().err());
        for (listen, counters) in &opened {
            let Some(service) = listen.service else { continue };
            match driver.counters(service) {
                Ok(counted) => counters.add_driver(counted),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        driver_report = Some(driver.end());
    }
    let summary = report::summary(job, &opened, placement, driver_report.as_ref(), fallback);
    Ok(ReflectOutcome { summary, failure, opened })
}

/// Opens the sockets. Without the engine in the driver, sockets answer all they can.
fn open_all(
    job: &ReflectJob,
    listens: Vec<Listen>,
    own_ports: &Arc<[u16]>,
    driver: Option<&DriverEngine>,
) -> Result<Sockets, Failure> {
    let mut sockets = Sockets::default();
    for mut listen in listens {
        listen.service = listen.service.filter(|_| driver.is_some());
        let counters = match driver {
            None => Arc::<Counters>::default(),
            Some(_) => Arc::new(Counters::with_driver()),
        };
        if !listen.scheme.spec().has_reflector() {
            sockets.opened.push((listen, counters));
            continue;
        }
        let earlier = match (driver, listen.service) {
            (Some(driver), Some(service)) => Some(driver.earlier(service)?),
            _ => None,
        };
        match open(job, &listen, own_ports, earlier, &counters) {
            Ok(service) => sockets.services.push(service),
            // A machine without one address family answers on the other.
            Err(error) if job.urls.is_empty() && is_family_unavailable(&error) => {
                crate::say(&format!("dwell: skipping {}: {error}", listen.url));
                continue;
            }
            Err(error) => return Err(open_failure(error, &listen)),
        }
        sockets.opened.push((listen, counters));
    }
    if sockets.opened.is_empty() {
        return Err(Failure::unsupported("neither IPv4 nor IPv6 is available"));
    }
    Ok(sockets)
}

/// Runs the services, and supervises the engine in the driver on a thread of its own.
fn serve_all(
    services: Vec<Box<dyn Service>>,
    driver: Option<&mut DriverEngine>,
    place: ThreadPlacement,
    stop: &AtomicBool,
) -> Result<Placement, Failure> {
    thread::scope(|scope| {
        let supervisor = driver.map(|driver| {
            scope.spawn(move || {
                let ended = driver.supervise(stop);
                stop.store(true, Ordering::Relaxed);
                ended
            })
        });
        let served = serve(services, place, stop);
        stop.store(true, Ordering::Relaxed);
        if let Some(supervisor) = supervisor {
            supervisor.join().expect("the supervisor does not panic")?;
        }
        served
    })
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let job = &args.job;
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let answered = perform(job, &stop, &mut |engine, lines| {
        if !args.quiet {
            engine.iter().for_each(|line| crate::say(&format!("dwell: {line}")));
            lines.iter().for_each(|line| crate::say(&format!("listening on {line}")));
        }
        // Of the program, a reflector needs a small part from here on. Its threads lock what they use.
        let _ = process::release_code();
    })?;
    if args.json {
        use std::io::Write;
        io::stdout().lock().write_all(answered.summary.to_json().as_bytes())?;
    } else {
        let engine = &answered.summary.engine;
        report::print(&answered.opened, job.engine.is_in_driver().then_some(engine))?;
    }
    answered.failure.map_or(Ok(Exit::Measured), Err)
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_left_to_kernel() {
            return write!(f, "{} (the kernel answers)", self.url);
        }
        let limit = self.limit.map_or("off".to_owned(), |limits| limits.to_string());
        let engine = if self.service.is_some() { ", xdp" } else { "" };
        write!(f, "{} (limit {limit}{engine})", self.url)
    }
}

/// Runs the services: polled by one thread, or with a blocking thread per socket. Returns the
/// placement, which is the same for all threads.
fn serve(
    mut services: Vec<Box<dyn Service>>,
    place: ThreadPlacement,
    stop: &AtomicBool,
) -> Result<Placement, Failure> {
    // Not real-time: the load depends on the senders, who must not starve this machine.
    let real_time = placement::real_time(&place, false);
    let stopped = || stop.load(Ordering::Relaxed);
    if place.busy_poll && !services.is_empty() {
        let placement = cpu::place_thread(place.cpu, real_time)?;
        let mut turns = || -> io::Result<()> {
            while !stopped() {
                for service in &mut services {
                    service.turn(Wait::No)?;
                }
            }
            Ok(())
        };
        let ended = turns();
        services.iter_mut().for_each(|service| service.end());
        ended?;
        return Ok(placement);
    }
    let shutters: Vec<_> = services
        .iter()
        .filter_map(|service| service.shutter().transpose())
        .collect::<Result<_, _>>()?;
    let placement = thread::scope(|scope| {
        let threads: Vec<_> = services
            .into_iter()
            .map(|mut service| {
                scope.spawn(move || -> io::Result<Placement> {
                    let placement = cpu::place_thread(place.cpu, real_time)?;
                    let _ = process::own_descriptors();
                    while !stopped() {
                        if let Err(error) = service.turn(Wait::Forever) {
                            stop.store(true, Ordering::Relaxed);
                            service.end();
                            return Err(error);
                        }
                    }
                    service.end();
                    Ok(placement)
                })
            })
            .collect();
        while !stopped() && threads.iter().all(|thread| !thread.is_finished()) {
            thread::sleep(STOP_CHECK_INTERVAL.to_std());
        }
        // One failed thread stops all.
        stop.store(true, Ordering::Relaxed);
        shutters.iter().for_each(Shutter::shut);
        let placements =
            threads.into_iter().map(|thread| thread.join().expect("the service does not panic"));
        placements.collect::<io::Result<Vec<_>>>()
    })?;
    Ok(placement.first().copied().unwrap_or_default())
}

/// The sockets to open.
fn listens(job: &ReflectJob) -> Result<Vec<Listen>, Failure> {
    let default = ["stamp://[::]:862".to_owned(), "stamp://0.0.0.0:862".to_owned()];
    let urls = if job.urls.is_empty() { &default[..] } else { &job.urls };
    let limit = match job.limit {
        None => None,
        Some(Limit::Off) => Some(None),
        Some(Limit::Rate(rate)) if rate.gap().is_none() => {
            return Err(Failure::usage(
                "invalid value 0pps for --limit: use a rate above 0, or off",
            ));
        }
        Some(Limit::Rate(rate)) => Some(Some(RateLimits::same(rate))),
    };
    let in_lab = limit.is_none() && dwell_lab::here().is_some();
    let mut listens = Vec::new();
    for url in urls {
        let target = Target::with_scheme(url)
            .map_err(|error| Failure::usage(format!("invalid target: {error}")))?;
        let spec = target.scheme.spec();
        if !spec.has_reflector() && job.engine == ReflectEngine::Socket {
            return Err(Failure::usage(format!(
                "{}:// needs no reflector: the kernel answers echo requests \
                 (unless net.ipv4.icmp_echo_ignore_all is set); --engine xdp answers them in the \
                 driver",
                target.scheme
            )));
        }
        let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(|error| {
            Failure::usage(format!("cannot resolve '{}': {error}; give an address", target.host))
        })?;
        for address in addresses {
            let trusted = in_lab || address.ip().is_loopback();
            listens.push(Listen {
                url: match (spec.transport.has_ports(), address) {
                    (true, _) => format!("{}://{address}", target.scheme),
                    (false, SocketAddr::V4(v4)) => format!("{}://{}", target.scheme, v4.ip()),
                    (false, SocketAddr::V6(v6)) => format!("{}://[{}]", target.scheme, v6.ip()),
                },
                scheme: target.scheme,
                address,
                limit: limit.unwrap_or((!trusted).then_some(DEFAULT_LIMITS)),
                key: None,
                service: None,
            });
        }
    }
    Ok(listens)
}

/// Reads the key of every socket whose protocol has an authenticated mode.
fn read_keys(job: &ReflectJob, listens: &mut [Listen]) -> Result<(), Failure> {
    let has_mode = |listen: &Listen| listen.scheme.spec().authentication.is_some();
    if let Some(open) = listens.iter().find(|listen| !has_mode(listen))
        && job.key_file.is_some()
    {
        return Err(Failure::usage(format!(
            "--key-file is for {} only: {} would answer unauthenticated requests; run a separate \
             reflector for it",
            protocols::urls_with(|spec| spec.authentication.is_some()),
            open.url
        )));
    }
    if !listens.iter().any(has_mode) {
        return Ok(());
    }
    let Some(secret) = secret::find(job.key_file.as_deref())? else { return Ok(()) };
    for listen in listens {
        let authentication = listen.scheme.spec().authentication.as_ref();
        listen.key = authentication.map(|mode| secret.key(mode)).transpose()?;
    }
    Ok(())
}

fn open(
    job: &ReflectJob,
    listen: &Listen,
    own_ports: &Arc<[u16]>,
    earlier: Option<Arc<dyn EarlierReplies>>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Service>, io::Error> {
    let Listen { scheme, address, limit, .. } = *listen;
    let spec = scheme.spec();
    if let Reflection::Stream(reply) = spec.reflection {
        let busy_poll = job.place.busy_poll;
        let service = tcp::TcpService::listen(address, reply, limit, busy_poll, counters)?;
        return Ok(Box::new(service));
    }
    let config = ResponderConfig {
        key: listen.key.clone(),
        replay_window: job.replay_window,
        stateless: job.stateless,
        clock: machine::boot_id().and_then(|id| id[..12].try_into().ok()),
        earlier,
    };
    let responder = Responder::new(scheme, config).ok_or(io::ErrorKind::Unsupported)?;
    let stamps = match job.stamps {
        Stamps::User => StampRequest::User,
        _ if has_stamping_card() => StampRequest::Card,
        _ => StampRequest::Kernel,
    };
    let rules = udp::AdmissionRules {
        limit,
        own_ports: (!job.allow_any_port).then(|| Arc::clone(own_ports)),
    };
    Ok(Box::new(udp::UdpService::bind(address, spec, responder, stamps, rules, counters)?))
}

/// Whether any network card can timestamp packets; requests may arrive on all of them.
fn has_stamping_card() -> bool {
    interface::all().is_ok_and(|all| all.iter().any(Interface::has_stamping_card))
}

fn is_link_local(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local())
}

fn is_family_unavailable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
}

fn open_failure(error: io::Error, listen: &Listen) -> Failure {
    let Listen { url, scheme, address, .. } = listen;
    match error.kind() {
        io::ErrorKind::InvalidInput if is_link_local(address) => Failure::usage(format!(
            "{url}: {error}; a link-local address needs its interface, like [fe80::1%eth0]"
        )),
        // Such as a broadcast or multicast address.
        io::ErrorKind::InvalidInput => Failure::usage(format!("{url}: {error}")),
        io::ErrorKind::PermissionDenied => Failure::unsupported(format!(
            "cannot listen on port {}: choose another, like {}://{}:{}, or permit it \
             (setcap cap_net_bind_service+ep on the program, or sysctl -w \
             net.ipv4.ip_unprivileged_port_start={})",
            address.port(),
            scheme,
            if address.is_ipv6() { "[::]" } else { "0.0.0.0" },
            u32::from(address.port()) + 10_000,
            address.port(),
        )),
        io::ErrorKind::AddrInUse => Failure::from(anyhow::anyhow!(
            "{url} is in use: stop the program there, or choose another port"
        )),
        io::ErrorKind::AddrNotAvailable => {
            Failure::usage(format!("{url}: {} is not an address of this machine", address.ip()))
        }
        _ => Failure::from(anyhow::Error::new(error).context(format!("cannot open {url}"))),
    }
}
