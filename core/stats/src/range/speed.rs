//! Propagation speeds of media.

/// Speed of light in vacuum in metres per second.
pub const SPEED_OF_LIGHT: f64 = 299_792_458.0;

/// Propagation speed of a medium, and how far real media may differ from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PropagationSpeed {
    metres_per_second: f64,
    tolerance: f64,
}

impl PropagationSpeed {
    /// Radio in air: refractive index 1.00015, so that the tolerance includes vacuum and humid air.
    pub const AIR: Self =
        Self { metres_per_second: SPEED_OF_LIGHT / 1.000_15, tolerance: 0.000_15 };
    /// Twisted pair: nominal velocities of propagation of Cat 5e to Cat 7 cables are 0.64 to 0.80.
    pub const COPPER: Self = Self { metres_per_second: 0.72 * SPEED_OF_LIGHT, tolerance: 0.111_2 };
    /// Single-mode and multimode fibre: group index 1.463 to 1.492 from 850 to 1,550 nm.
    pub const FIBRE: Self =
        Self { metres_per_second: SPEED_OF_LIGHT / 1.477_4, tolerance: 0.009_9 };

    /// An exact speed; `None` unless above 0 and at most that of light.
    pub fn from_metres_per_second(speed: f64) -> Option<Self> {
        let is_possible = speed > 0.0 && speed <= SPEED_OF_LIGHT;
        is_possible.then_some(Self { metres_per_second: speed, tolerance: 0.0 })
    }

    /// Metres per second.
    pub fn metres_per_second(self) -> f64 {
        self.metres_per_second
    }

    /// Maximum relative error of the speed.
    pub fn tolerance(self) -> f64 {
        self.tolerance
    }

    /// Distance of a round-trip time in picoseconds.
    pub fn metres(self, round_trip_ps: f64) -> f64 {
        round_trip_ps * 1e-12 * self.metres_per_second / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_medium_is_faster_than_light() {
        for speed in [PropagationSpeed::AIR, PropagationSpeed::COPPER, PropagationSpeed::FIBRE] {
            let fastest = speed.metres_per_second() * (1.0 + speed.tolerance());
            assert!(fastest <= SPEED_OF_LIGHT * 1.000_000_1, "{speed:?}");
        }
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 3e8] {
            assert_eq!(PropagationSpeed::from_metres_per_second(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn step_of_1_5625_ns_is_0_234_m() {
        assert_eq!((PropagationSpeed::AIR.metres(1_562.5) * 1e3).round(), 234.0);
        // 149.9 m for each microsecond of round trip.
        assert_eq!((PropagationSpeed::AIR.metres(1e6) * 10.0).round(), 1_499.0);
    }
}
