//! S0.24: jitter grows with the packet size only for encrypted packets.

use dwell_report::model::ClaimVerdict;
use dwell_report::model::quantity::three_digits;

use super::{ERROR_PROBABILITY, MAX_FLAT_RATIO, PREFERRED_METRICS, common_metric, explanation};
use crate::evidence::{Evidence, Line, value};
use crate::judgement::{Judgement, nothing};

/// Effect of the packet size on the jitter of a mode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    Grows,
    /// The increase from the smallest to the largest size is surely within [`MAX_FLAT_RATIO`].
    Flat,
    Unknown,
}

pub(super) fn judge(route: &Evidence, translate: &Evidence, encrypt: &Evidence) -> Judgement {
    let modes = [route.bare(), translate.bare(), encrypt.bare()];
    if modes.iter().any(Evidence::is_empty) {
        let all: Vec<&Evidence> = modes.iter().collect();
        return nothing(&all, "Not all three modes were measured.");
    }
    let jitter = |mode: &Evidence| {
        let rfc3550 = |trial: &_| value(trial, "jitter_rfc3550_ns");
        mode.line("payload_bytes", rfc3550, ERROR_PROBABILITY / 3.0)
    };
    let [Some(of_route), Some(of_translate), Some(of_encrypt)] =
        [jitter(&modes[0]), jitter(&modes[1]), jitter(&modes[2])]
    else {
        return Judgement::cannot_tell(
            "Here: a line needs three sizes, and more trials than sizes.",
        );
    };
    let lines = [("route", of_route), ("translate", of_translate), ("encrypt", of_encrypt)];
    let [a, b, c] = lines.map(|(_, line)| growth(&line));
    let verdict = match (a, b, c) {
        (Growth::Grows, ..) | (_, Growth::Grows, _) | (_, _, Growth::Flat) => ClaimVerdict::Fail,
        (Growth::Flat, Growth::Flat, Growth::Grows) => ClaimVerdict::Pass,
        _ => ClaimVerdict::CannotTell,
    };
    let each = lines.map(|(name, line)| {
        let (said, slope) = (growth(&line).words(), line.fit.slope);
        let [low, high] = [slope.interval.low, slope.interval.high].map(three_digits);
        format!("{name} {said} ({low} to {high})")
    });
    let mut words = format!("Here: {} (slopes of RFC 3550 jitter).", each.join(", "));
    if verdict == ClaimVerdict::CannotTell {
        words += " More repetitions would narrow the intervals.";
    }
    let all: Vec<&Evidence> = modes.iter().collect();
    Judgement::new(verdict, of_encrypt.fit.slope.value, words).without(&all).with_explanation(
        || {
            let [_, _, encrypt] = &modes;
            explanation::per_byte(encrypt, common_metric(PREFERRED_METRICS, &[encrypt])?)
        },
    )
}

fn growth(line: &Line) -> Growth {
    let (slope, (from, to)) = (line.fit.slope.interval, line.ends);
    let most = slope.high * (to - from);
    if most <= (MAX_FLAT_RATIO - 1.0) * line.fit.at(from) {
        Growth::Flat
    } else if slope.low > 0.0 {
        Growth::Grows
    } else {
        Growth::Unknown
    }
}

impl Growth {
    const fn words(self) -> &'static str {
        match self {
            Self::Grows => "grows",
            Self::Flat => "does not grow",
            Self::Unknown => "cannot tell",
        }
    }
}
