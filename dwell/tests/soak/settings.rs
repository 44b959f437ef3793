//! How many kills a soak has, and which they are: numbers of the environment, and a seeded generator.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fmt};

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Kills of `make test`.
const DEFAULT_KILLS: usize = 10;

/// Deletions of `make test`.
const DEFAULT_DELETIONS: usize = 1;

/// Longest time from the moment at which everything works to a kill.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// A soak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// `DWELL_SOAK_KILLS`.
    pub(crate) kills: usize,
    /// `DWELL_SOAK_DELETIONS`: kills of nats-server after which its store is deleted.
    pub(crate) deletions: usize,
    /// `DWELL_SOAK_SEED`, in decimal digits.
    pub(crate) seed: u64,
}

/// A process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The uplink of the node with this index.
    Uplink(usize),
    Hub,
    NatsServer,
    /// The same, and its store is deleted before the next start. If the hub is down, the store has
    /// messages that no hub has received.
    NatsStore {
        is_hub_down: bool,
    },
    /// PostgreSQL with all its processes.
    Postgres,
}

/// A kill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    pub(crate) victim: Victim,
    /// Time from the moment at which everything works.
    pub(crate) delay: Duration,
}

impl Settings {
    /// Reads the environment. The default seed is the time.
    pub(crate) fn read() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self {
            kills: number("DWELL_SOAK_KILLS").map_or(DEFAULT_KILLS, |kills| kills as usize),
            deletions: number("DWELL_SOAK_DELETIONS").map_or(DEFAULT_DELETIONS, |n| n as usize),
            seed: number("DWELL_SOAK_SEED").unwrap_or(since.as_nanos() as u64),
        }
    }

    /// The kills in their order: equally many of each kind, at random moments.
    pub(crate) fn kills(&self, nodes: usize) -> Vec<Kill> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let victim = |number: usize| match number % 4 {
            0 => Victim::NatsServer,
            1 => Victim::Hub,
            2 => Victim::Uplink(number / 4 % nodes),
            _ => Victim::Postgres,
        };
        let mut victims: Vec<Victim> = (0..self.kills).map(victim).collect();
        victims.shuffle(&mut random);
        let mut servers: Vec<_> =
            victims.iter_mut().filter(|victim| **victim == Victim::NatsServer).collect();
        servers.shuffle(&mut random);
        for (number, server) in servers.into_iter().take(self.deletions).enumerate() {
            *server = Victim::NatsStore { is_hub_down: number % 2 == 0 };
        }
        let is_store = |victim: &&Victim| matches!(victim, Victim::NatsStore { .. });
        let deletions = victims.iter().filter(is_store).count();
        assert_eq!(deletions, self.deletions, "only every fourth kill can delete a store");
        let delay = |_| MAX_DELAY.mul_f64(random.random_range(0.0..1.0));
        let delays: Vec<Duration> = (0..self.kills).map(delay).collect();
        let kills = victims.into_iter().zip(delays);
        kills.map(|(victim, delay)| Kill { victim, delay }).collect()
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uplink(node) => write!(f, "uplink n{}", node + 1),
            Self::Hub => f.write_str("hub"),
            Self::NatsServer => f.write_str("nats-server"),
            Self::NatsStore { is_hub_down: false } => f.write_str("nats-server, store deleted"),
            Self::NatsStore { is_hub_down: true } => {
                f.write_str("hub and nats-server, store deleted")
            }
            Self::Postgres => f.write_str("PostgreSQL"),
        }
    }
}

#[test]
fn seed_decides_kills_of_all_kinds() {
    let settings = Settings { kills: 200, deletions: 5, seed: 7 };
    let victims: Vec<_> = settings.kills(3).iter().map(|kill| kill.victim).collect();
    let again: Vec<_> = settings.kills(3).iter().map(|kill| kill.victim).collect();
    assert_eq!(victims, again);
    let other = Settings { seed: 8, ..settings };
    assert!(other.kills(3).iter().zip(&victims).any(|(kill, victim)| kill.victim != *victim));
    let count = |is: fn(&Victim) -> bool| victims.iter().filter(|victim| is(victim)).count();
    assert_eq!(count(|victim| matches!(victim, Victim::NatsStore { .. })), 5);
    assert_eq!(count(|victim| *victim == Victim::NatsServer), 45);
    assert_eq!(count(|victim| *victim == Victim::Postgres), 50);
    (0..3).for_each(|node| assert!(victims.contains(&Victim::Uplink(node))));
}
