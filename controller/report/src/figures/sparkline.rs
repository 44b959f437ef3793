//! Sparkline histograms for a terminal: one line of block characters per cell, on a shared axis.

use crate::analysis::group;
use crate::analysis::subject::Subject;
use crate::model::RunData;
use crate::model::quantity::delay_ns;

/// Bar heights in eighths of a line; blank for an empty bin.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns lines of `width` bars, without line feeds.
///
/// The first line names the delay and the range of the axis, which is logarithmic if all delays are
/// positive. Bars are relative to the highest one of their line; a non-empty bin is at least an
/// eighth high. Empty for a run without samples.
pub fn sparkline(run: &RunData, width: usize) -> Vec<String> {
    let Some(subject) = Subject::of(run) else { return Vec::new() };
    let (groups, _) = group::overlaid(run, subject.metric);
    let low = groups.iter().filter_map(|group| group.steps.min()).min();
    let high = groups.iter().filter_map(|group| group.steps.max()).max();
    let (Some(low), Some(high)) = (low, high) else { return Vec::new() };
    let (edges, kind) = edges(low, high, width);
    let noun = subject.title();
    let mut lines = vec![format!("{noun}, {} to {}{kind}", delay_ns(low), delay_ns(high))];
    let labels = groups.iter().map(|group| group.label.chars().count());
    let margin = labels.max().unwrap_or_default();
    for group in &groups {
        let bars = group.steps.bars(&edges);
        lines.push(format!("{:margin$}  {}", group.label, line(&bars)));
    }
    lines
}

/// Edges of `width` bins from `low` to `high`, both included.
fn edges(low: i64, high: i64, width: usize) -> (Vec<f64>, &'static str) {
    let (low, high) = (low as f64, (high as f64).max(low as f64 + 1.0));
    let along = |i: usize| i as f64 / width.max(1) as f64;
    let inner = 1..width.max(1);
    let (inner, kind): (Vec<f64>, _) = if low > 0.0 {
        (inner.map(|i| low * (high / low).powf(along(i))).collect(), " (logarithmic)")
    } else {
        (inner.map(|i| low + (high - low) * along(i)).collect(), "")
    };
    // The outer edges are the exact extremes, so that rounding excludes no sample.
    (std::iter::once(low).chain(inner).chain(std::iter::once(high)).collect(), kind)
}

fn line(bars: &[u64]) -> String {
    let highest = bars.iter().copied().max().unwrap_or_default().max(1);
    let height = |n: u64| match n {
        0 => 0,
        n => ((n as f64 / highest as f64 * 8.0).round() as usize).clamp(1, 8),
    };
    bars.iter().map(|n| HEIGHTS[height(*n)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_shows_highest_bar_and_single_sample() {
        assert_eq!(line(&[0, 1, 500, 1_000]), " ▁▄█");
        assert_eq!(line(&[0, 0]), "  ");
        let (edges, kind) = edges(-5, -5, 3);
        assert_eq!((edges.len(), kind), (4, ""));
        assert!(edges.is_sorted_by(|a, b| a < b));
    }
}
