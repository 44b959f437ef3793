//! Moments of the delays of nodes and links, for searches of paths.

use std::collections::HashMap;

use crate::component::{delays_over, fixed_ns, occupancy, relay_delays};
use crate::delay_fit::DelayFit;
use crate::network::{Flow, Link, Relay};
use crate::quantile_function::QuantileFunction;
use crate::usage::Traffic;
use crate::waiting::waiting_moments;

/// Moments of a delay in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) least: f64,
    pub(crate) mean: f64,
    pub(crate) variance: f64,
    pub(crate) quantile: f64,
}

impl Moments {
    /// Moments of a sum; its quantile is the sum of the quantiles.
    fn of_sum(delays: &[QuantileFunction], probability: f64) -> Self {
        delays.iter().fold(Self::default(), |sum, delay| Self {
            least: sum.least + delay.min(),
            mean: sum.mean + delay.mean(),
            variance: sum.variance + delay.variance(),
            quantile: sum.quantile + delay.at(probability),
        })
    }

    fn shifted(self, by: f64) -> Self {
        Self { least: self.least + by, mean: self.mean + by, quantile: self.quantile + by, ..self }
    }

    fn plus_wait(self, others: Traffic, capacity_ratio: f64, probability: f64) -> Self {
        let (utilisation, service) = occupancy(others, capacity_ratio);
        let [mean, variance, quantile] = waiting_moments(utilisation, service, probability);
        Self {
            mean: self.mean + mean,
            variance: self.variance + variance,
            quantile: self.quantile + quantile,
            ..self
        }
    }
}

/// Computes moments for one flow. Those of a fit's residuals are computed once, whatever the number
/// of nodes and links that have it.
pub(crate) struct MomentCache<'f> {
    flow: &'f Flow,
    probability: f64,
    residuals: HashMap<*const DelayFit, Moments>,
}

impl<'f> MomentCache<'f> {
    pub(crate) fn new(flow: &'f Flow, probability: f64) -> Self {
        Self { flow, probability, residuals: HashMap::new() }
    }

    /// Moments of a fit; `None` if its residuals reach below a delay of 0, where they are cut off.
    fn of_fit(&mut self, fit: &DelayFit, rate_pps: f64) -> Option<Moments> {
        let probability = self.probability;
        let residuals = self.residuals.entry(std::ptr::from_ref(fit)).or_insert_with(|| {
            Moments::of_sum(std::slice::from_ref(&fit.residual_ns), probability)
        });
        let moments = residuals.shifted(fit.plane(self.flow.size_bytes, rate_pps));
        (moments.least >= 0.0).then_some(moments)
    }

    /// Moments of a relay beside this traffic. Between two loads, the standard deviation is
    /// interpolated, which is right for distributions of the same shape.
    pub(crate) fn of_relay(&mut self, relay: &Relay, others: Traffic) -> Moments {
        let rate_pps = others.rate_pps + self.flow.rate_pps;
        let (low, high, weight) = relay.delay.around(relay.load_ratio);
        let Some((a, b)) = self.of_fit(low, rate_pps).zip(self.of_fit(high, rate_pps)) else {
            return Moments::of_sum(&relay_delays(relay, others, self.flow), self.probability);
        };
        let between = |a: f64, b: f64| (1.0 - weight) * a + weight * b;
        let moments = Moments {
            least: between(a.least, b.least),
            mean: between(a.mean, b.mean),
            variance: between(a.variance.sqrt(), b.variance.sqrt()).powi(2),
            quantile: between(a.quantile, b.quantile),
        };
        moments.plus_wait(others, relay.capacity_ratio, self.probability)
    }

    /// Moments of a link beside this traffic.
    pub(crate) fn of_link(&mut self, link: &Link, others: Traffic) -> Moments {
        let rate_pps = others.rate_pps + self.flow.rate_pps;
        let excess = match &link.excess {
            Some(model) => self.of_fit(&model.excess, rate_pps),
            None => Some(Moments::default()),
        };
        let Some(excess) = excess else {
            return Moments::of_sum(&delays_over(link, others, self.flow), self.probability);
        };
        let delay = excess.shifted(fixed_ns(link, self.flow));
        delay.plus_wait(others, 1.0, self.probability)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::network::InlineModel;
    use crate::network::tests::{constant, plain_link};

    /// A model whose residuals begin at `low`.
    fn model(low: f64, high: f64) -> InlineModel {
        let residual_ns = vec![(0.0, low), (0.9, low + 2e4), (1.0, high)].try_into().ok();
        InlineModel { residual_ns, ns_per_byte: 10.0, ..constant(50_000.0) }
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let flow = Flow {
            name: "f".into(),
            from: 0,
            to: 1,
            size_bytes: 700.0,
            rate_pps: 200.0,
            path: Vec::new(),
        };
        let busy = Traffic { flows: 2, rate_pps: 500.0, busy_ns: 4e8, ..Traffic::default() };
        let busy = Traffic { busy_square: 4e8 * 1e6, ..busy };
        for low in [0.0, -60_000.0] {
            let mut mode = (*model(low, 3e5).relay("m", "route").delay).clone();
            mode.levels.push(DelayFit { load_ratio: 1.0, ..model(low, 6e5).link().excess });
            let relay = Relay { delay: Arc::new(mode), ..constant(1.0).relay("m", "route") };
            let excess = Some(Arc::new(model(low, 3e5).link()));
            let link = Link { excess, ..plain_link(10e6) };
            for others in [Traffic::default(), busy] {
                let mut cache = MomentCache::new(&flow, 0.95);
                let mut pairs =
                    vec![(cache.of_link(&link, others), delays_over(&link, others, &flow))];
                for load in [0.0, 0.4, 1.0] {
                    let relay = relay.beside(load);
                    let found = cache.of_relay(&relay, others);
                    pairs.push((found, relay_delays(&relay, others, &flow)));
                }
                for (found, delays) in pairs {
                    let exact = Moments::of_sum(&delays, 0.95);
                    let is_near = |of: fn(&Moments) -> f64| {
                        (of(&found) - of(&exact)).abs() <= 0.05 * of(&exact).abs()
                    };
                    assert!(is_near(|one| one.least), "{found:?} and {exact:?}");
                    assert!(is_near(|one| one.mean), "{found:?} and {exact:?}");
                    assert!(is_near(|one| one.variance), "{found:?} and {exact:?}");
                    assert!(is_near(|one| one.quantile), "{found:?} and {exact:?}");
                }
            }
        }
    }
}
