//! Forms the parts of a run and draws the figures that apply to them.

use crate::analysis::condition::{Condition, Links};
use crate::analysis::group::{self, Group};
use crate::analysis::paced::{self, paced};
use crate::analysis::subject::{ExperimentKind, Subject, caption};
use crate::figures::figure::{Figure, slug};
use crate::figures::overlay::Overlay;
use crate::figures::spec::{Draw, FigureSpec, Parts};
use crate::model::axes::{LINK_RATE, RELAY};
use crate::model::{Axis, RunData};

/// Returns the figures of a run in the order of `specs`.
pub(super) fn draw(specs: &[FigureSpec], run: &RunData) -> Vec<Figure> {
    let kind = ExperimentKind::of(run);
    let whole = Part::whole(run, kind);
    let subsets = whole.subject.as_ref().map_or_else(Vec::new, |it| subsets(specs, kind, it));
    let at_conditions = subsets.iter().filter_map(|(parts, subset)| {
        Some((*parts, Part::at_condition(subset, run, whole.subject.as_ref()?.metric)?))
    });
    let at_conditions: Vec<(Parts, Part)> = at_conditions.collect();
    let (trials, caption) = (paced(run), caption(run));
    let senders = paced::by_node(run, &trials, &caption);
    let mut figures = Vec::new();
    for spec in specs {
        for parts in applying(spec, kind) {
            let first = figures.len();
            match parts {
                Parts::Run | Parts::EachAxis => figures.extend(whole.draw(&spec.draw)),
                Parts::OneCondition | Parts::EachMode(_) => {
                    let of = at_conditions.iter().filter(|(of, _)| *of == parts);
                    figures.extend(of.flat_map(|(_, part)| part.draw(&spec.draw)));
                }
                Parts::EachSender => {
                    if let Draw::Sender(draw) = spec.draw {
                        figures.extend(senders.iter().flat_map(draw));
                    }
                }
            }
            for figure in &mut figures[first..] {
                figure.question = spec.question;
                let rest = figure.id.strip_prefix(spec.id);
                debug_assert!(rest.is_some(), "{} is not {}", figure.id, spec.id);
                figure.shows = spec.shows.zip(rest).map(|(shows, rest)| format!("{shows}{rest}"));
            }
        }
    }
    number_duplicate_ids(&mut figures);
    figures
}

/// Returns the figures of a comparison that overlay distributions.
pub(super) fn overlaid(specs: &[FigureSpec], overlay: &Overlay) -> Vec<Figure> {
    let draw = |spec: &FigureSpec| match spec.draw {
        Draw::Overlay(draw) => Some(Figure { question: spec.question, ..draw(overlay)? }),
        _ => None,
    };
    let compared =
        specs.iter().filter(|spec| applying(spec, ExperimentKind::Comparison).next().is_some());
    compared.filter_map(draw).collect()
}

fn applying(spec: &FigureSpec, kind: ExperimentKind) -> impl Iterator<Item = Parts> {
    spec.applies.iter().filter(move |(of, _)| *of == kind).map(|(_, parts)| *parts)
}

/// Trials of a run with some parameters fixed at one level each.
struct RunSubset {
    run: RunData,
    /// The relay mode, if it is fixed too.
    mode: Option<String>,
    /// The levels, in words.
    words: Option<String>,
}

/// Subsets for every kind of part that figures of this kind of run need.
fn subsets(
    specs: &[FigureSpec],
    kind: ExperimentKind,
    subject: &Subject,
) -> Vec<(Parts, RunSubset)> {
    let run = subject.run;
    let condition = Condition::of(run, subject.metric, Links::Unlimited);
    let mut done = Vec::new();
    let mut all = Vec::new();
    for parts in specs.iter().flat_map(|spec| applying(spec, kind)) {
        if done.contains(&parts) {
            continue;
        }
        done.push(parts);
        let (free, modes): (&[&str], Vec<Option<&String>>) = match parts {
            Parts::OneCondition => (&[], vec![None]),
            Parts::EachMode(free) => (free, run.modes().iter().map(Some).collect()),
            _ => continue,
        };
        let fixed = condition.without(free);
        for mode in modes {
            let mut levels = fixed.levels();
            levels.extend(mode.map(|mode| (RELAY, mode.as_str())));
            let (run, mode) = (run.at(&levels), mode.cloned());
            all.push((parts, RunSubset { run, mode, words: fixed.words() }));
        }
    }
    all
}

/// Part of a run for which figures are drawn.
struct Part<'a> {
    run: &'a RunData,
    /// `None` without any delay.
    subject: Option<Subject<'a>>,
    /// Parameters against which figures are drawn.
    axes: Vec<&'a Axis>,
    /// Distributions to overlay, and the axis that distinguishes them.
    groups: Vec<Group<'a>>,
    groups_by: &'static str,
    /// How the groups were formed.
    groups_note: Option<String>,
    /// Names of the part in ids, titles and findings; `None` for a whole run.
    labels: Option<Labels>,
}

/// Names of a part of a run.
struct Labels {
    /// Suffix of ids.
    id: String,
    /// Suffix of titles.
    title: String,
    /// Sentence for findings.
    note: Option<String>,
}

impl<'a> Part<'a> {
    fn whole(run: &'a RunData, kind: ExperimentKind) -> Self {
        let subject = Subject::of(run);
        let varied = |axis: &&Axis| axis.name != RELAY && axis.values.len() > 1;
        let (links, mut axes): (Vec<&Axis>, Vec<&Axis>) =
            run.axes.iter().filter(varied).partition(|axis| axis.name == LINK_RATE);
        axes.extend(links);
        let (groups, groups_note) = match &subject {
            Some(subject) if kind == ExperimentKind::Delay => group::overlaid(run, subject.metric),
            _ => (Vec::new(), None),
        };
        Self { run, subject, axes, groups, groups_by: "", groups_note, labels: None }
    }

    /// A subset of the run `of`, shown by its metric. `None` if it has no samples.
    fn at_condition(subset: &'a RunSubset, of: &RunData, metric: &'a str) -> Option<Self> {
        let run = &subset.run;
        let subject = Subject::about(run, metric)?;
        let axes = run.axis("size").into_iter().collect();
        let fixed = subset.words.as_ref().map(|words| format!("Fixed: {words}."));
        if let Some(mode) = &subset.mode {
            let (id, title) = (format!("-{}", slug(mode)), format!(", relay {mode}"));
            let labels = Some(Labels { id, title, note: fixed });
            let (subject, groups) = (Some(subject), Vec::new());
            return Some(Self {
                run,
                subject,
                axes,
                groups,
                groups_by: "",
                groups_note: None,
                labels,
            });
        }
        let groups = subject.cells.clone();
        let is_absent = |mode: &&String| {
            let label = format!("{RELAY} {mode}");
            !groups.iter().any(|group| group.label == label)
        };
        let absent: Vec<String> = of.modes().iter().filter(is_absent).cloned().collect();
        let absent =
            (!absent.is_empty()).then(|| format!("Not measured there: {}.", absent.join(", ")));
        let sentences: Vec<String> = fixed.into_iter().chain(absent).collect();
        let note = (!sentences.is_empty()).then(|| sentences.join(" "));
        let (groups_by, groups_note, subject) = (RELAY, note.clone(), Some(subject));
        let labels = Some(Labels { id: String::new(), title: ", by relay mode".to_owned(), note });
        Some(Self { run, subject, axes, groups, groups_by, groups_note, labels })
    }

    fn draw(&self, draw: &Draw) -> Vec<Figure> {
        let axes = || self.axes.iter().copied();
        let subject = self.subject.as_ref();
        let figures: Vec<Figure> = match draw {
            Draw::Run(draw) => draw(self.run).into_iter().collect(),
            Draw::RunAxis(draw) => axes().filter_map(|axis| draw(self.run, axis)).collect(),
            Draw::Delay(draw) => subject.and_then(draw).into_iter().collect(),
            Draw::Axis(draw) => {
                let along = subject
                    .into_iter()
                    .flat_map(|subject| axes().filter_map(move |axis| draw(subject, axis)));
                along.collect()
            }
            Draw::Overlay(draw) => {
                let draw = |subject| draw(&self.overlay(subject));
                subject.and_then(draw).into_iter().collect()
            }
            Draw::Sender(_) => Vec::new(),
        };
        let Some(labels) = &self.labels else { return figures };
        let labelled = |mut figure: Figure| {
            // An overlay has the note already.
            if let (Some(note), false) = (&labels.note, matches!(draw, Draw::Overlay(_))) {
                figure.finding += &format!(" {note}");
            }
            figure.id += &labels.id;
            let title = format!("{}{}", figure.title, labels.title);
            figure.with_title(title)
        };
        figures.into_iter().map(labelled).collect()
    }

    fn overlay<'s>(&'s self, subject: &'s Subject) -> Overlay<'s> {
        Overlay {
            noun: subject.noun,
            unit: subject.unit,
            caption: &subject.caption,
            groups: &self.groups,
            by: self.groups_by,
            note: self.groups_note.as_deref(),
            finding: None,
        }
    }
}

/// Numbers figures with equal ids: names of axes may differ only in characters that ids replace.
fn number_duplicate_ids(figures: &mut [Figure]) {
    for i in 1..figures.len() {
        let (before, rest) = figures.split_at_mut(i);
        let figure = &mut rest[0];
        let base = figure.id.clone();
        let mut n = 2;
        while before.iter().any(|other| other.id == figure.id) {
            figure.id = format!("{base}-{n}");
            n += 1;
        }
    }
}
