//! Sets of time as spans [from, to), in nanoseconds.

/// A span.
pub(crate) type TimeSpan = (i64, i64);

/// Sorts spans and joins those that overlap or touch.
pub(crate) fn join(mut spans: Vec<TimeSpan>) -> Vec<TimeSpan> {
    spans.retain(|(from, to)| from < to);
    spans.sort_unstable();
    let mut joined: Vec<TimeSpan> = Vec::new();
    for (from, to) in spans {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Returns the parts of `spans` that are in none of `removed`. Both are joined.
pub(crate) fn subtract(spans: &[TimeSpan], removed: &[TimeSpan]) -> Vec<TimeSpan> {
    let mut left = Vec::new();
    for &(mut from, to) in spans {
        for &(start, end) in removed {
            if to <= start || end <= from {
                continue;
            }
            if from < start {
                left.push((from, start));
            }
            from = from.max(end);
        }
        if from < to {
            left.push((from, to));
        }
    }
    left
}

/// Length of all spans, which are joined.
pub(crate) fn length(spans: &[TimeSpan]) -> i64 {
    spans.iter().map(|(from, to)| to - from).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contains(spans: &[TimeSpan], time: i64) -> bool {
        spans.iter().any(|(from, to)| (*from..*to).contains(&time))
    }

    proptest! {
        #[test]
        fn spans_equal_sets_of_instants(
            a in prop::collection::vec((0..50_i64, 0..50_i64), 0..8),
            b in prop::collection::vec((0..50_i64, 0..50_i64), 0..8),
        ) {
            let (joined, removed) = (join(a.clone()), join(b.clone()));
            let left = subtract(&joined, &removed);
            let mut instants = 0;
            for time in 0..50 {
                let expected = contains(&a, time) && !contains(&b, time);
                prop_assert_eq!(contains(&left, time), expected, "{}", time);
                instants += i64::from(expected);
            }
            prop_assert_eq!(length(&left), instants);
            prop_assert!(joined.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
