//! The report as one self-contained HTML file. Text and tables need no script; the embedded runtime
//! draws the figures. The file makes no requests, and its Content-Security-Policy forbids any.

mod html;
mod sections;

use askama::Template;
use base64::Engine as _;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::analysis::findings::{Finding, findings};
use crate::analysis::key_figures::key_figures;
use crate::figures::{Figure, comparison_figures, figures, slug};
use crate::model::RunData;
use crate::model::quantity::count_noun;
use crate::model::table::Table;
use crate::page::html::{TableView, json};

/// Maximum number of findings that are not folded.
const MAX_FINDINGS: usize = 7;

/// Returns the report of a run: the key figures, the figure that shows the first of them, the
/// findings, the other figures, the conditions, and the reasons to trust the numbers.
pub fn page(run: &RunData) -> String {
    document(parts(run))
}

/// The content of a page, to be put into the document of a report or of the web controller.
#[derive(Clone, Debug)]
pub struct PageParts {
    /// Title.
    pub title: String,
    /// What the page is about: paragraphs in HTML.
    pub about: String,
    /// Sections, in HTML. A figure is an element of class `chart`, whose `data-figure` names its
    /// specification.
    pub main: String,
    /// Id and title of each figure, in order.
    pub figures: Vec<(String, String)>,
    /// Vega-Lite specification by id of the figure.
    pub specifications: Map<String, Value>,
}

/// Files of the page that are the same for all runs.
pub mod assets {
    use serde_json::Value;

    use crate::figures::theme;

    /// Style sheet of pages and of the tables and figures in them.
    pub const STYLE: &str = include_str!("../assets/page.css");
    /// Script that draws the figures of a page, zooms into them and shows their values.
    pub const SCRIPT: &str = concat!(
        include_str!("../assets/zoom.js"),
        include_str!("../assets/tooltip.js"),
        include_str!("../assets/page.js")
    );
    /// Vega, Vega-Lite and vega-embed, bundled by controller/web.
    pub const RUNTIME: &str = include_str!("../assets/vega.js");
    /// How to read the figures, in HTML.
    pub const HOW_TO_READ: &str = include_str!("../assets/how-to-read.html");

    /// Returns the configuration of figures in dark mode.
    pub fn dark_theme() -> Value {
        theme::dark()
    }
}

/// Returns a table in HTML, as in reports: in a scrollable box that the keyboard reaches.
pub fn table_html(table: &Table, caption: &str) -> String {
    TableView::new(table, caption).to_string()
}

/// Returns a figure in HTML, with a heading of this level and its table.
pub fn figure_html(figure: &Figure, level: u32) -> String {
    Article::new(figure, level).to_string()
}

/// Returns the content of [`page`].
pub fn parts(run: &RunData) -> PageParts {
    let title = run.title.as_deref().unwrap_or(&run.name);
    let figures = figures(run);
    let keys = key_figures(run);
    let shown = keys.first().map(|key| slug(&key.finding));
    let place = figures.iter().position(|figure| shown.is_some() && figure.shows == shown);
    let main_figure = figures.get(place.unwrap_or_default());
    let others = figures.iter().filter(|figure| main_figure.is_none_or(|it| it.id != figure.id));
    let others: Vec<&Figure> = others.collect();
    let mut main = sections::key_figures(run, &keys);
    if let Some(figure) = main_figure {
        main += &MainFigure { figure: Article::new(figure, 3) }.to_string();
    }
    main += &summary(&findings(run), sections::failed(run));
    main += &sections::verdicts(run);
    main += &sections::claims(run);
    if main_figure.is_none() || !others.is_empty() {
        main += &Figures::new(&others).to_string();
    }
    main += &sections::measurement(run, "measured", "What was measured");
    main += &sections::trust(run, "Trust", "trust");
    main += &sections::trials(run);
    main += &sections::delays(run);
    main += &sections::machines(run);
    main += &sections::loads(run);
    main += &sections::witnesses(run);
    main += &sections::notes(run);
    PageParts::new(title, sections::about(run), main, &figures)
}

/// Returns the comparison of several runs by one metric; the first run is the baseline. The page
/// has the `findings`, the figures of [`comparison_figures`] and the trust panel of each run.
pub fn comparison_page(runs: &[RunData], metric: &str, findings: &[Finding]) -> String {
    document(comparison_parts(runs, metric, findings))
}

/// Returns the content of [`comparison_page`].
pub fn comparison_parts(runs: &[RunData], metric: &str, findings: &[Finding]) -> PageParts {
    let figures = comparison_figures(runs, metric, findings);
    let mut main = summary(findings, Vec::new());
    main += &sections::rates_of_runs(runs);
    main += &Figures::new(&figures.iter().collect::<Vec<_>>()).to_string();
    for (i, run) in runs.iter().enumerate() {
        let name = run.lettered_id(i);
        main += "<div class=\"run\">";
        main += &sections::about(run);
        main +=
            &sections::measurement(run, &format!("measured-{i}"), &format!("What {name} measured"));
        let heading = format!("Trust: {name} ({})", run.name);
        main += &sections::trust(run, &heading, &format!("trust-{i}"));
        main += "</div>";
    }
    PageParts::new("Comparison of runs", sections::about_runs(runs), main, &figures)
}

impl PageParts {
    fn new(title: &str, about: String, main: String, figures: &[Figure]) -> Self {
        let titles = figures.iter().map(|figure| (figure.id.clone(), figure.title.clone()));
        let specifications = figures.iter().map(|figure| (figure.id.clone(), figure.spec.clone()));
        Self {
            title: title.to_owned(),
            about,
            main,
            figures: titles.collect(),
            specifications: specifications.collect(),
        }
    }
}

/// Findings: the first ones with their details folded, then the rest and the undecided ones.
#[derive(Template)]
#[template(path = "summary.html")]
struct Summary<'a> {
    first: Vec<&'a Finding>,
    /// Number of further findings.
    more: String,
    /// Further findings.
    rest: Option<TableView<'a>>,
    /// Failed trials with their reasons.
    failed: Vec<String>,
}

fn summary(findings: &[Finding], failed: Vec<String>) -> String {
    let (undecided, decided): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| finding.is_undecided());
    // A list of folded findings only would be empty.
    let (first, rest) = match decided.split_at_checked(MAX_FINDINGS) {
        Some((first, rest)) => (first.to_vec(), [rest, &undecided].concat()),
        None if decided.is_empty() => (undecided, Vec::new()),
        None => (decided, undecided),
    };
    let mut table = Table::new(["finding", "details"]);
    rest.iter().map(|it| it.lead_and_details()).for_each(|(lead, details)| {
        table.row([lead.into_owned(), details.to_owned()]);
    });
    let more = count_noun(rest.len() as u64, "more finding");
    let rest = (!rest.is_empty()).then(|| TableView::new(&table, "More findings"));
    Summary { first, more, rest, failed }.to_string()
}

/// A figure with a heading of this level.
#[derive(Template)]
#[template(path = "figure.html")]
struct Article<'a> {
    figure: &'a Figure,
    level: u32,
    table: TableView<'a>,
}

impl<'a> Article<'a> {
    fn new(figure: &'a Figure, level: u32) -> Self {
        Self { figure, level, table: TableView::new(&figure.table, &figure.title) }
    }
}

#[derive(Template)]
#[template(path = "main-figure.html")]
struct MainFigure<'a> {
    figure: Article<'a>,
}

/// Figures by the question that they answer.
#[derive(Template)]
#[template(path = "figures.html")]
struct Figures<'a> {
    groups: Vec<(&'static str, Vec<Article<'a>>)>,
}

impl<'a> Figures<'a> {
    fn new(figures: &[&'a Figure]) -> Self {
        let articles = |all: &[&'a Figure]| all.iter().map(|it| Article::new(it, 4)).collect();
        let alike = figures.chunk_by(|a, b| a.question == b.question);
        Self { groups: alike.map(|all| (all[0].question.title(), articles(all))).collect() }
    }
}

/// The whole file; `about` and `main` are HTML.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    version: &'static str,
    about: String,
    main: String,
    how_to_read: &'static str,
    figures: &'a [(String, String)],
    specifications: String,
    dark: String,
    style: &'static str,
    runtime: &'static str,
    runtime_hash: String,
    script: &'static str,
    script_hash: String,
}

fn document(parts: PageParts) -> String {
    let page = Page {
        title: &parts.title,
        version: env!("CARGO_PKG_VERSION"),
        about: parts.about,
        main: parts.main,
        how_to_read: assets::HOW_TO_READ,
        figures: &parts.figures,
        specifications: json(&Value::Object(parts.specifications)),
        dark: json(&assets::dark_theme()),
        style: assets::STYLE,
        runtime: assets::RUNTIME,
        runtime_hash: hash(assets::RUNTIME),
        script: assets::SCRIPT,
        script_hash: hash(assets::SCRIPT),
    };
    page.to_string() + "\n"
}

/// Hash of a script for the policy, which blocks every other script.
fn hash(script: &str) -> String {
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_do_not_close_their_element() {
        for script in [assets::RUNTIME, assets::SCRIPT] {
            assert!(
                !script.contains("</script") && !script.contains("<!--") && !script.contains('\r')
            );
        }
        assert!(!assets::STYLE.contains("</style"));
    }
}
