//! Verdict cards of devices, from stored runs.

use dwell_documents::published_boards;
use dwell_report::model::PublishedSender;
use dwell_report::{Table, VerdictCard, verdict_cards};
use dwell_store::{Store, StoreError};
use dwell_units::{BitRate, Bytes};
use serde_json::{Value, json};

use super::answer::StoredAnswer;
use super::details::one_line;
use super::known::KnownDevice;
use crate::{OnProblem, verdict_data};

/// Plan that measures a verdict card.
pub const PLAN: &str = "plans/device-accuracy.toml";

/// Returns the verdict cards of the newest run that decides on the device as a sender; else of the
/// newest run that tried. Empty if there is no such run.
pub fn cards(
    store: &Store,
    known: &KnownDevice,
    on_problem: OnProblem<'_>,
) -> Result<Vec<VerdictCard>, StoreError> {
    let mut undecided = Vec::new();
    for run in store.runs_of_device(&known.row)? {
        let Some(data) = verdict_data(store, &run, on_problem)? else { continue };
        let nodes = store.nodes_on_device(&run, &known.row)?;
        let cards: Vec<VerdictCard> =
            nodes.iter().flat_map(|node| verdict_cards(&data, node)).collect();
        if cards.iter().any(VerdictCard::is_decided) {
            return Ok(cards);
        }
        if undecided.is_empty() {
            undecided = cards;
        }
    }
    Ok(undecided)
}

/// Formats a card: the verdict, then its run.
pub fn card_text(card: &VerdictCard) -> String {
    let parameters = card.parameters.iter().map(|(name, value)| format!("{name} {value}, "));
    let engines = match &card.engines[..] {
        [] => String::new(),
        [engine] => format!("best engine {engine}, "),
        engines => format!("best engines {}, ", engines.join(" and ")),
    };
    format!(
        "{} ({}run {}, {engines}{})",
        card.text,
        parameters.collect::<String>(),
        card.run,
        all_trials(card)
    )
}

/// Number of trials, which are of all engines, not only of the best one.
fn all_trials(card: &VerdictCard) -> String {
    format!("{} trials of all engines", card.trials)
}

/// States how to measure a verdict card.
pub fn how_to_measure(name: &str) -> String {
    format!("no verdict yet; measure one: `dwell run {PLAN} --on sender={name},receiver=OTHER`")
}

/// A device with its cards and what its last answer says about its hardware.
pub struct JudgedDevice<'a> {
    /// The device.
    pub known: &'a KnownDevice,
    /// Its last answer.
    pub answer: Option<StoredAnswer>,
    /// Its verdict cards.
    pub cards: Vec<VerdictCard>,
}

/// Returns one row per device and card, then the published boards.
pub fn verdict_list(devices: &[JudgedDevice<'_>]) -> Table {
    let columns = ["device", "hardware", "price", "all sizes", "large packets", "source"];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for judged in devices {
        let device = &judged.known.device;
        let row = |all: String, large: String, source: String| {
            let price = device.price.clone().unwrap_or_else(|| "-".to_owned());
            let cells = [device.name.clone(), hardware(judged), price, all, large, source];
            cells.map(|cell| one_line(&cell)).to_vec()
        };
        for card in &judged.cards {
            let engine = card.engines.first().map(|engine| format!("best engine {engine}, "));
            let engine = engine.unwrap_or_default();
            let source = format!("run {}, {engine}{}", card.run, all_trials(card));
            rows.push(row(limit(card.all_sizes_bps), large(card), source));
        }
        if judged.cards.is_empty() {
            rows.push(row("-".to_owned(), "-".to_owned(), "no verdict yet".to_owned()));
        }
    }
    rows.extend(published_boards().iter().map(|board| {
        let of = |place: usize| {
            board.largest.get(place).map_or("-".to_owned(), |(_, largest)| largest.to_string())
        };
        let source = format!("{}, {}", board.cite, board.engine);
        let name = board.name.to_owned();
        vec![name, board.hardware.clone(), "-".to_owned(), of(0), of(1), source]
    }));
    Table { columns: columns.map(str::to_owned).to_vec(), rows }
}

/// Formats a largest rate.
fn limit(bps: Option<u64>) -> String {
    match bps {
        None => "cannot tell".to_owned(),
        Some(0) => "not suitable".to_owned(),
        Some(bps) => BitRate(bps).to_string(),
    }
}

fn large(card: &VerdictCard) -> String {
    let rate = limit(card.large_packets_bps);
    match card.large_packets_bps {
        Some(1..) => format!("{rate} from {}", Bytes(card.large_packets_from)),
        _ => rate,
    }
}

/// Describes the hardware: the user's model, then what the device itself says.
fn hardware(judged: &JudgedDevice<'_>) -> String {
    let mut parts: Vec<String> = judged.known.device.model.clone().into_iter().collect();
    if let Some(answer) = &judged.answer {
        let machine = &answer.doctor["machine"];
        parts.push(answer.arch.clone());
        parts.extend(machine["cpu"].as_str().map(str::to_owned));
        parts.extend(machine["cores"].as_u64().map(|cores| format!("{cores} CPUs")));
        parts.push(format!("Linux {}", answer.kernel));
    }
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

/// Returns the published boards as JSON.
pub fn published() -> Vec<Value> {
    let object = |board: &PublishedSender| {
        let largest: Vec<Value> = board
            .largest
            .iter()
            .map(|(sizes, largest)| json!({ "sizes": sizes, "largest": largest.to_string() }))
            .collect();
        json!({
            "name": board.name,
            "cite": board.cite,
            "engine": board.engine,
            "hardware": board.hardware,
            "verdicts": largest,
        })
    };
    published_boards().iter().map(object).collect()
}
