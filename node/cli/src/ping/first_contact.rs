//! Chooses the protocol of a target without a scheme: STAMP if a reflector answers, otherwise ICMP
//! echo. The attempt is not counted, and the result names the URL measured.

use std::sync::atomic::{AtomicBool, Ordering};

use dwell_protocol::{IcmpSocket, PingJob};

use super::reach::{self, Addresses, Reached, Unanswered};
use super::setup::PingSetup;
use crate::{Failure, Target};

/// The job to run and its address.
pub(super) struct Choice {
    pub(super) job: PingJob,
    pub(super) setup: PingSetup,
    pub(super) reached: Reached,
}

/// Possible protocols of a target without a scheme.
enum Candidates {
    /// STAMP, required by this option.
    Stamp(PingSetup, &'static str),
    /// ICMP, for this reason.
    Icmp(PingSetup, String),
    /// STAMP if a reflector answers, otherwise ICMP.
    Either(PingSetup, PingSetup),
}

fn has_scheme(target: &str) -> bool {
    target.contains("://")
}

/// Checks everything that the command line alone decides.
pub(super) fn check(job: &PingJob) -> Result<(), Failure> {
    if has_scheme(&job.target) { PingSetup::new(job).map(drop) } else { candidates(job).map(drop) }
}

/// Chooses the address and, for a target without a scheme, the protocol. Calls `say` with the
/// choice and its reason.
pub(super) fn choose(
    job: PingJob,
    stop: &AtomicBool,
    say: &mut dyn FnMut(String),
) -> Result<Choice, Failure> {
    if has_scheme(&job.target) {
        let setup = PingSetup::new(&job)?;
        let reached = reach::reach(&job, &setup, stop)?;
        return Ok(Choice { job, setup, reached });
    }
    let host = job.target.clone();
    match candidates(&job)? {
        Candidates::Icmp(setup, reason) => {
            say(format!("dwell: {host}: measuring with ICMP echo, because {reason}"));
            let job = PingJob { target: setup.target.to_string(), ..job };
            let reached = reach::reach(&job, &setup, stop)?;
            Ok(Choice { job, setup, reached })
        }
        Candidates::Stamp(setup, option) => {
            let job = PingJob { target: setup.target.to_string(), ..job };
            let addresses = Addresses::resolve(&job, &setup)?;
            let reached = match reach::first_answer(&job, &setup, &addresses, stop) {
                Ok(peer) => Reached { peer, untried: None, stream: None },
                Err(_) if stop.load(Ordering::Relaxed) => return Err(Failure::interrupted()),
                Err(silent) => {
                    let why = reasons(&silent);
                    say(format!(
                        "dwell: {host}: no STAMP reflector answered ({why}); {option} is for STAMP \
                         only, so there is no fallback to ICMP echo"
                    ));
                    Reached { untried: None, ..addresses.untried() }
                }
            };
            Ok(Choice { job, setup, reached })
        }
        Candidates::Either(stamp, icmp) => {
            let tried = PingJob { target: stamp.target.to_string(), ..job };
            let addresses = Addresses::resolve(&tried, &stamp)?;
            match reach::first_answer(&tried, &stamp, &addresses, stop) {
                Ok(peer) => {
                    say(format!("dwell: {host}: measuring with STAMP, {peer} answers"));
                    let reached = Reached { peer, untried: None, stream: None };
                    Ok(Choice { job: tried, setup: stamp, reached })
                }
                Err(_) if stop.load(Ordering::Relaxed) => Err(Failure::interrupted()),
                Err(silent) => {
                    let why = reasons(&silent);
                    say(format!(
                        "dwell: {host}: measuring with ICMP echo, no STAMP reflector answered ({why})"
                    ));
                    let job = PingJob { target: icmp.target.to_string(), ..tried };
                    let reached = reach::reach(&job, &icmp, stop)?;
                    Ok(Choice { job, setup: icmp, reached })
                }
            }
        }
    }
}

/// The protocols that the options allow.
fn candidates(job: &PingJob) -> Result<Candidates, Failure> {
    let target: Target =
        job.target.parse().map_err(|error| Failure::usage(format!("invalid target: {error}")))?;
    let setup = |url: String| PingSetup::new(&PingJob { target: url, ..job.clone() });
    let stamp = setup(target.to_string());
    let icmp_url = format!("icmp://{}", job.target);
    let only_stamp = if job.path.is_some() {
        Some("--path")
    } else if job.key_file.is_some() {
        Some("--key-file")
    } else if std::env::var_os("DWELL_KEY").is_some() {
        Some("DWELL_KEY")
    } else if icmp_url.parse::<Target>().is_err() {
        Some("a port")
    } else {
        None
    };
    if let Some(option) = only_stamp {
        return Ok(Candidates::Stamp(stamp?, option));
    }
    let icmp = setup(icmp_url);
    if job.parameters.icmp_socket != IcmpSocket::Auto {
        return Ok(Candidates::Icmp(icmp?, "--icmp-socket is for ICMP only".into()));
    }
    match (stamp, icmp) {
        (Ok(stamp), Ok(icmp)) => Ok(Candidates::Either(stamp, icmp)),
        (Ok(stamp), Err(_)) => Ok(Candidates::Stamp(stamp, "one of the options")),
        (Err(why), Ok(icmp)) => {
            Ok(Candidates::Icmp(icmp, format!("STAMP does not allow it: {:#}", why.error)))
        }
        (Err(why), Err(_)) => Err(why),
    }
}

/// Lists the addresses tried, each with the reason.
fn reasons(silent: &[Unanswered]) -> String {
    let one = |silence: &Unanswered| match &silence.reason {
        Some(reason) => format!("{}: {reason}", silence.peer),
        None => format!("{}: no answer", silence.peer),
    };
    silent.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use dwell_protocol::PingParameters;
    use dwell_units::Bytes;

    use super::*;

    fn kind(job: PingJob) -> &'static str {
        match candidates(&job) {
            Ok(Candidates::Stamp(..)) => "stamp",
            Ok(Candidates::Icmp(..)) => "icmp",
            Ok(Candidates::Either(..)) => "either",
            Err(_) => "usage",
        }
    }

    #[test]
    fn options_of_one_protocol_leave_no_choice() {
        let host = || PingJob::to("192.0.2.1");
        assert_eq!(kind(host()), "either");
        assert_eq!(kind(PingJob { path: Some(4), ..host() }), "stamp");
        assert_eq!(kind(PingJob { key_file: Some("key".into()), ..host() }), "stamp");
        assert_eq!(kind(PingJob::to("192.0.2.1:8620")), "stamp");
        let with = |parameters| kind(PingJob { parameters, ..host() });
        let raw = IcmpSocket::Raw;
        assert_eq!(with(PingParameters { icmp_socket: raw, ..Default::default() }), "icmp");
        let sized = |size| PingParameters { size: Some(Bytes(size)), ..Default::default() };
        assert_eq!(with(sized(8)), "icmp", "below the minimum of STAMP");
        assert_eq!(with(sized(70_000)), "usage");
        assert_eq!(kind(PingJob::to("2001:db8::1")), "either");
    }
}
