//! Emulation of links: the mechanisms that can do what is requested, found by trying, and the
//! queueing disciplines that they need.

use std::fmt::Write as _;

use dwell_engine::link::{Link as Wire, LinkParameters};
use dwell_io::netns;
use dwell_units::{Nanos, Ratio};

use crate::description::{Lab, Parameters};
use crate::error::LabError;
use crate::iproute::Tool;
use crate::topology::{LinkOptions, Mechanism};

/// Chooses mechanisms, and caches the trials.
#[derive(Default)]
pub(crate) struct MechanismChooser {
    tried: Vec<(String, bool)>,
}

impl MechanismChooser {
    /// Returns the mechanism for a link: the requested one; otherwise a plain veth pair if nothing
    /// is requested, netem if the kernel has it, tbf for a rate alone, and dwell's own TAP link for
    /// the rest.
    pub(crate) fn mechanism(&mut self, options: &LinkOptions) -> Result<Mechanism, LabError> {
        let parameters = options.parameters();
        match options.mechanism {
            Some(Mechanism::Netem) => {
                let netem = netem(&parameters, options.seed);
                self.works(&netem)?.then_some(Mechanism::Netem).ok_or_else(|| {
                    LabError::Unsupported(format!(
                        "this kernel or its tc refuses '{netem}'; leave --mechanism out, or load \
                         the module: modprobe sch_netem"
                    ))
                })
            }
            Some(mechanism) => Ok(mechanism),
            None if parameters.is_plain() => Ok(Mechanism::Veth),
            None if self.works(&netem(&parameters, options.seed))? => Ok(Mechanism::Netem),
            None if parameters.is_rate_only() => Ok(Mechanism::Tbf),
            None => Ok(Mechanism::Tap),
        }
    }

    /// Whether tc and the kernel accept the discipline.
    fn works(&mut self, discipline: &str) -> Result<bool, LabError> {
        self.accepts(&format!("qdisc add dev lo root {discipline}\n"))
    }

    /// Whether tc and the kernel accept these lines, tried in a temporary namespace.
    pub(crate) fn accepts(&mut self, lines: &str) -> Result<bool, LabError> {
        if let Some((_, works)) = self.tried.iter().find(|(tried, _)| tried == lines) {
            return Ok(*works);
        }
        let tried = std::thread::scope(|scope| {
            let trial = scope.spawn(|| {
                netns::enter_new().map_err(LabError::io("creating a namespace"))?;
                Tool::Tc.batch(lines, None)
            });
            trial.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let works = match tried {
            Ok(()) => true,
            Err(LabError::Tool { .. }) => false,
            Err(error) => return Err(error),
        };
        self.tried.push((lines.to_owned(), works));
        Ok(works)
    }
}

/// Returns the tc lines that shape the links of a node. Each end shapes what it sends.
pub(crate) fn qdiscs(lab: &Lab, place: usize) -> String {
    let node = &lab.nodes[place].name;
    let mut lines = String::new();
    for link in &lab.links {
        let discipline = discipline(link.mechanism, &link.parameters);
        if let (Some(end), Some(discipline)) = (link.end_at(node), discipline) {
            let _ = writeln!(lines, "qdisc add dev {} root {discipline}", link.interface(end));
        }
    }
    lines
}

/// Returns the queueing discipline for these parameters, if the mechanism uses one.
pub(crate) fn discipline(mechanism: Mechanism, wanted: &Parameters) -> Option<String> {
    let parameters = wanted.link_parameters();
    match mechanism {
        Mechanism::Veth | Mechanism::Tap | Mechanism::Hwsim => None,
        Mechanism::Tbf => Some(tbf(&parameters)),
        Mechanism::Netem => Some(netem(&parameters, wanted.seed)),
    }
}

/// Returns a token bucket as deep as one frame, so that no burst exceeds the rate, with a queue
/// like that of a TAP link.
fn tbf(parameters: &LinkParameters) -> String {
    const MTU: usize = 1_600;
    let rate = parameters.rate.map_or(0, |rate| rate.0);
    format!("tbf rate {rate}bit burst {MTU} limit {}", Wire::QUEUE_LEN * MTU)
}

fn netem(parameters: &LinkParameters, seed: Option<u64>) -> String {
    let mut text = format!("netem limit {}", Wire::QUEUE_LEN + parameters.max_frames_in_flight());
    let mut word = |name: &str, value: String| {
        let _ = write!(text, " {name} {value}");
    };
    if parameters.delay != Nanos::ZERO {
        let jitter = match parameters.jitter {
            Nanos::ZERO => String::new(),
            jitter => format!(" {}", microseconds(jitter)),
        };
        word("delay", format!("{}{jitter}", microseconds(parameters.delay)));
    }
    for (name, ratio) in [
        ("loss", parameters.loss),
        ("duplicate", parameters.duplicate),
        ("reorder", parameters.reorder),
    ] {
        if ratio != Ratio::ZERO {
            word(name, ratio.to_string());
        }
    }
    if let Some(rate) = parameters.rate {
        word("rate", format!("{}bit", rate.0));
    }
    if let Some(seed) = seed.filter(|_| parameters.is_random()) {
        word("seed", seed.to_string());
    }
    text
}

/// netem of iproute2 6.1 takes no unit below microseconds, but accepts fractions.
fn microseconds(time: Nanos) -> String {
    let (whole, rest) = (time.0 / 1_000, time.0 % 1_000);
    format!("{whole}.{rest:03}us")
}

#[cfg(test)]
mod tests {
    use dwell_units::BitRate;

    use super::*;

    fn ratio(text: &str) -> Ratio {
        text.parse().unwrap()
    }

    #[test]
    fn netem_arguments_cover_all_parameters() {
        let parameters = LinkParameters {
            rate: Some(BitRate(10_000_000)),
            delay: Nanos::from_millis(5),
            jitter: Nanos::from_millis(1),
            loss: ratio("1%"),
            duplicate: ratio("0.5%"),
            reorder: ratio("0.0001%"),
        };
        let expected = "netem limit 225 delay 5000.000us 1000.000us loss 1% duplicate 0.5% \
                        reorder 0.0001% rate 10000000bit seed 7";
        assert_eq!(netem(&parameters, Some(7)), expected);
        let plain = LinkParameters { delay: Nanos::from_millis(5), ..LinkParameters::default() };
        assert!(!netem(&plain, Some(7)).contains("seed"), "nothing here is random");
    }

    #[test]
    fn token_bucket_holds_one_frame() {
        let parameters =
            LinkParameters { rate: Some(BitRate(10_000_000)), ..LinkParameters::default() };
        assert_eq!(tbf(&parameters), "tbf rate 10000000bit burst 1600 limit 160000");
    }
}
