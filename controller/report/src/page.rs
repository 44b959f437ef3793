//! The report as one self-contained HTML file. Text and tables need no script; the embedded runtime
//! draws the figures. The file makes no requests, and its Content-Security-Policy forbids any.

mod html;
mod sections;

use std::fmt::Write as _;

use base64::Engine as _;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::analysis::findings::{Finding, findings};
use crate::analysis::key_figures::key_figures;
use crate::figures::{Figure, comparison_figures, figures, slug, theme};
use crate::model::RunData;
use crate::model::quantity::count_noun;
use crate::page::html::{escape, json, table};

/// Vega, Vega-Lite and vega-embed, bundled by controller/web.
const RUNTIME: &str = include_str!("../assets/vega.js");
const SCRIPT: &str = include_str!("../assets/page.js");
const STYLE: &str = include_str!("../assets/page.css");

/// Maximum number of findings that are not folded.
const MAX_FINDINGS: usize = 7;

/// Returns the report of a run: the key figures, the figure that shows the first of them, the
/// findings, the other figures, the conditions, and the reasons to trust the numbers.
pub fn page(run: &RunData) -> String {
    let title = run.title.as_deref().unwrap_or(&run.name);
    let figures = figures(run);
    let keys = key_figures(run);
    let shown = keys.first().map(|key| slug(&key.finding));
    let place = figures.iter().position(|figure| shown.is_some() && figure.shows == shown);
    let main_figure = figures.get(place.unwrap_or_default());
    let others = figures.iter().filter(|figure| main_figure.is_none_or(|it| it.id != figure.id));
    let others: Vec<&Figure> = others.collect();
    let mut main = sections::key_figures(run, &keys);
    main += &main_figure.map_or_else(String::new, main_section);
    main += &summary(&findings(run), &sections::failed(run));
    main += &sections::verdicts(run);
    main += &sections::claims(run);
    if main_figure.is_none() || !others.is_empty() {
        main += &figures_section(&others);
    }
    main += &sections::measured(run, "measured", "What was measured");
    main += &sections::trust(run, "Trust", "trust");
    main += &sections::trials(run);
    main += &sections::delays(run);
    main += &sections::machines(run);
    main += &sections::loads(run);
    main += &sections::witnesses(run);
    main += &sections::notes(run);
    main += sections::HOW_TO_READ;
    document(title, "Delay report", &sections::about(run), &main, &figures)
}

/// Returns the comparison of several runs by one metric; the first run is the baseline. The page
/// has the `findings`, the figures of [`comparison_figures`] and the trust panel of each run.
pub fn comparison_page(runs: &[RunData], metric: &str, findings: &[Finding]) -> String {
    let figures = comparison_figures(runs, metric, findings);
    let mut main = summary(findings, "");
    main += &sections::rates_of_runs(runs);
    main += &figures_section(&figures.iter().collect::<Vec<_>>());
    for (i, run) in runs.iter().enumerate() {
        let name = run.lettered_id(i);
        let _ = write!(main, "<div class=\"run\">{}", sections::about(run));
        main +=
            &sections::measured(run, &format!("measured-{i}"), &format!("What {name} measured"));
        let heading = format!("Trust: {name} ({})", run.name);
        main += &sections::trust(run, &heading, &format!("trust-{i}"));
        main += "</div>";
    }
    main += sections::HOW_TO_READ;
    let about = sections::about_runs(runs);
    document("Comparison of runs", "Delay report", &about, &main, &figures)
}

/// Findings: the first ones with their details folded, then the rest and the undecided ones.
fn summary(findings: &[Finding], more: &str) -> String {
    let mut html = "<section id=\"summary\" aria-labelledby=\"summary-title\">\
        <h2 id=\"summary-title\">Findings</h2><ul class=\"findings\">\n"
        .to_owned();
    let (undecided, decided): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| finding.is_undecided());
    // A list of folded findings only would be empty.
    let (first, rest) = match decided.split_at_checked(MAX_FINDINGS) {
        Some((first, rest)) => (first.to_vec(), [rest, &undecided].concat()),
        None if decided.is_empty() => (undecided, Vec::new()),
        None => (decided, undecided),
    };
    for finding in first {
        let (lead, details) = finding.lead_and_details();
        let _ = write!(html, "<li>{}", escape(lead));
        if !details.is_empty() {
            let _ = write!(
                html,
                "<details><summary>Details<span class=\"hidden\">: {}</span></summary><p>{}</p></details>",
                escape(lead),
                escape(details)
            );
        }
        html += "</li>\n";
    }
    html += "</ul>";
    if !rest.is_empty() {
        let count = count_noun(rest.len() as u64, "more finding");
        let _ = write!(html, "<details><summary>{count}</summary><ul>");
        for finding in rest {
            let _ = writeln!(html, "<li>{}</li>", escape(&finding.text));
        }
        html += "</ul></details>";
    }
    format!("{html}{more}</section>\n")
}

const NO_SCRIPT: &str =
    "<noscript><p>Figures need JavaScript; their numbers are in the tables.</p></noscript>\n";

fn main_section(figure: &Figure) -> String {
    format!(
        "<section id=\"main-figure\" aria-labelledby=\"main-figure-title\">\
         <h2 id=\"main-figure-title\" class=\"hidden\">Main figure</h2>{NO_SCRIPT}{}</section>\n",
        article(figure, 3)
    )
}

/// Figures by the question that they answer.
fn figures_section(figures: &[&Figure]) -> String {
    let mut html = "<section id=\"figures\" aria-labelledby=\"figures-title\">\
        <h2 id=\"figures-title\">Figures</h2>"
        .to_owned();
    if figures.is_empty() {
        return html + "<p>There are no samples to draw.</p></section>\n";
    }
    html += NO_SCRIPT;
    for alike in figures.chunk_by(|a, b| a.question == b.question) {
        let _ = writeln!(html, "<h3 class=\"question\">{}</h3>", alike[0].question.title());
        alike.iter().for_each(|figure| html += &article(figure, 4));
    }
    html + "</section>\n"
}

/// A figure with a heading of this level.
fn article(figure: &Figure, level: u32) -> String {
    let (id, title) = (escape(&figure.id), escape(&figure.title));
    format!(
        "<article class=\"figure\" id=\"figure-{id}\" aria-labelledby=\"title-{id}\">\
         <h{level} id=\"title-{id}\">{title}</h{level}><p class=\"finding\">{}</p>\
         <details class=\"data\"><summary>Data table<span class=\"hidden\">: {title}</span></summary>{}</details>\
         <div class=\"chart\" data-figure=\"{id}\"></div></article>\n",
        escape(&figure.finding),
        table(&figure.table, &figure.title),
    )
}

fn document(title: &str, kind: &str, about: &str, main: &str, figures: &[Figure]) -> String {
    let title = escape(title);
    let mut links = String::new();
    for figure in figures {
        let _ = write!(
            links,
            "<li><a href=\"#figure-{}\">{}</a></li>",
            escape(&figure.id),
            escape(&figure.title)
        );
    }
    let contents = if figures.is_empty() {
        String::new()
    } else {
        format!(
            "<nav aria-label=\"Figures\"><details><summary>Figures on this page ({})</summary><ul>{links}</ul></details></nav>",
            figures.len()
        )
    };
    let specs: Map<String, Value> =
        figures.iter().map(|figure| (figure.id.clone(), figure.spec.clone())).collect();
    let policy = format!(
        "default-src 'none'; script-src '{}' '{}'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'",
        hash(RUNTIME),
        hash(SCRIPT)
    );
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta name=\"generator\" content=\"dwell {version}\">\
         <title>{title} | dwell</title>\n<style>{STYLE}</style></head>\n<body>\
         <a class=\"skip\" href=\"#main\">Skip to the content</a>\
         <header><p class=\"kind\">{kind}</p><h1>{title}</h1>{about}{contents}</header>\n\
         <main id=\"main\" tabindex=\"-1\">\n{main}</main>\n\
         <footer><p>Written by dwell {version}. This file is self-contained and works offline; open sections are printed.</p></footer>\n\
         <script type=\"application/json\" id=\"specifications\">{specs}</script>\n\
         <script type=\"application/json\" id=\"dark\">{dark}</script>\n\
         <script>{RUNTIME}</script>\n<script>{SCRIPT}</script></body></html>\n",
        version = env!("CARGO_PKG_VERSION"),
        specs = json(&Value::Object(specs)),
        dark = json(&theme::dark()),
    )
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
        for script in [RUNTIME, SCRIPT] {
            assert!(
                !script.contains("</script") && !script.contains("<!--") && !script.contains('\r')
            );
        }
        assert!(!STYLE.contains("</style"));
    }
}
