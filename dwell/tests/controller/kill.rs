//! A runner that is killed at any moment, again and again.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant, SystemTime};

use crate::fixture::{Place, as_root};

const TRIALS: u32 = 12;
const KILLS: usize = 50;

/// A finished trial as it was when it was first seen: when it began and ended, its only summary,
/// and the file of its samples.
#[derive(Clone, Debug, PartialEq)]
struct Finished {
    row: String,
    samples: (SystemTime, u64),
}

fn finished(place: &Place) -> BTreeMap<String, Finished> {
    let rows = place.query(
        "SELECT runs.run || '/' || number || ' ' || trials.started || ' ' || trials.finished || ' '
             || first_ns || ' ' || samples || ' ' || group_concat(summaries.id)
         FROM trials JOIN runs ON runs.id = run_id
         JOIN summaries ON trial_id = trials.id AND role = 'measurement'
         WHERE trials.state = 'finished' GROUP BY trials.id",
    );
    let rows = rows.into_iter().map(|row| {
        let trial = row.split(' ').next().unwrap().to_owned();
        let file = fs::metadata(place.data().join(format!("samples/{trial}.parquet"))).unwrap();
        (trial, Finished { row, samples: (file.modified().unwrap(), file.len()) })
    });
    rows.collect()
}

#[test]
fn a_runner_killed_fifty_times_at_random_moments_measures_every_trial_exactly_once() {
    if !as_root() {
        return;
    }
    let drawn = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let seed = std::env::var("DWELL_SEED").map_or(drawn as u64 | 1, |seed| seed.parse().unwrap());
    println!("seed of the moments: {seed} (DWELL_SEED={seed} repeats them)");
    let mut x = seed;
    let mut random = move |below: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 16) % below
    };
    let place = Place::new();
    let plan = place.plan(TRIALS);
    let began = Instant::now();
    let (mut kills, mut known, mut resume) = (0, BTreeMap::new(), false);
    while kills < KILLS {
        let mut arguments = vec!["run", &plan, "--quiet"];
        arguments.extend(resume.then_some(["--resume", "last"]).iter().flatten());
        let mut runner = place.start(&mut place.command(&arguments));
        // From before there is a run to long after its first trials.
        let moment = Instant::now() + Duration::from_micros(random(700_000));
        while Instant::now() < moment && runner.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(500));
        }
        match runner.try_wait().unwrap() {
            None => {
                runner.kill().unwrap();
                runner.wait().unwrap();
                kills += 1;
                resume = true;
            }
            Some(status) => {
                assert!(status.success(), "kill {kills}: {status}: {}", place.said());
                resume = false;
            }
        }
        let now = finished(&place);
        for (trial, before) in &known {
            assert_eq!(now.get(trial), Some(before), "after kill {kills}");
        }
        known = now;
    }
    let last = place.dwell(&["run", &plan, "--quiet", "--resume", "last"]);
    assert!(last.status.success(), "{last:?}");
    let runs = place.json(&["runs"]);
    let runs = runs["runs"].as_array().unwrap();
    for run in runs {
        assert_eq!((&run["trials_finished"], &run["state"]), (&TRIALS.into(), &"finished".into()));
    }
    let all = finished(&place);
    assert_eq!(all.len(), runs.len() * TRIALS as usize);
    for (trial, before) in &known {
        assert_eq!(all.get(trial), Some(before));
    }
    for (trial, finished) in &all {
        assert!(!finished.row.contains(','), "{trial} has several measurements: {finished:?}");
    }
    place.assert_nothing_is_left();
    println!("{KILLS} kills over {} runs in {:.1?}", runs.len(), began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
