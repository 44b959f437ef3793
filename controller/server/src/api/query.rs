//! `/query`: the delays of a pair of nodes, as `dwell query` prints them.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dwell_hub::{Query as HubQuery, query as ask, query_csv, query_object};
use dwell_rollup::{Name, RollupMetric};
use dwell_units::Nanos;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::error::{ApiError, ChangeErrors, CommonErrors};
use super::extract::Query;
use crate::app::App;
use crate::error::Error;
use crate::hub::now_ns;

/// Range of a query without a start.
const DEFAULT_RANGE: Nanos = Nanos::from_secs(86_400);

/// Which delays are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PairQuery {
    /// Node that sends the probes
    sender: String,
    /// Node that reflects them
    reflector: String,
    /// Delay, such as rtt_ns or one_way_forward_ns; rtt_ns if absent
    metric: Option<String>,
    /// Only this measurement of the schedule
    measure: Option<String>,
    /// Only this protocol
    protocol: Option<String>,
    /// Start, such as 2026-11-26T08:00:00Z; 24 h before the end if absent
    from: Option<String>,
    /// End; now if absent
    to: Option<String>,
    /// Length of a row, such as 5min or 1h: a multiple of 10 s; by the length of the range if absent
    step: Option<String>,
    /// Form of the answer; json if absent
    format: Option<FormatName>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum FormatName {
    Json,
    Csv,
}

impl PairQuery {
    fn question(&self, now_ns: i64) -> Result<HubQuery, Error> {
        let wrong = |field: &str, reason: &str| Error::Invalid(format!("{field}: {reason}"));
        let name = |field: &str, text: &str| {
            text.parse::<Name>().map_err(|error| wrong(field, &error.to_string()))
        };
        let time = |field: &str, text: &str| {
            let time = text.parse::<Timestamp>().ok();
            let ns = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
            ns.ok_or_else(|| wrong(field, "write it like 2026-11-26T08:00:00Z"))
        };
        let metric = match &self.metric {
            None => RollupMetric::Rtt,
            Some(text) => RollupMetric::named(text).ok_or_else(|| {
                let known = RollupMetric::ALL.map(RollupMetric::name).join(", ");
                wrong("metric", &format!("known are {known}"))
            })?,
        };
        let step = self.step.as_ref().map(|text| text.parse::<Nanos>());
        let step = step.transpose().map_err(|error| wrong("step", &error.to_string()))?;
        let to = self.to.as_ref().map(|text| time("to", text)).transpose()?;
        let to_ns = to.unwrap_or(now_ns);
        let from = self.from.as_ref().map(|text| time("from", text)).transpose()?;
        Ok(HubQuery {
            sender: name("sender", &self.sender)?,
            reflector: name("reflector", &self.reflector)?,
            measure: self.measure.clone(),
            protocol: self.protocol.as_ref().map(|text| name("protocol", text)).transpose()?,
            metric,
            from_ns: from.unwrap_or_else(|| to_ns.saturating_sub(DEFAULT_RANGE.0)),
            to_ns,
            step_ns: step.map(|step| step.0),
        })
    }
}

/// Returns the delays of a pair of nodes over time: `dwell.query/1`, or CSV
#[utoipa::path(get, path = "/query", tag = "fleet", params(PairQuery),
    responses(
        (status = 200, content((serde_json::Value = "application/json"), (String = "text/csv"))),
        CommonErrors, ChangeErrors))]
pub(super) async fn query(
    State(app): State<App>,
    Query(wanted): Query<PairQuery>,
) -> Result<Response, ApiError> {
    let now_ns = now_ns();
    let question = wanted.question(now_ns)?;
    let read = app.read_hub(move |transaction| {
        let answers = ask(transaction, &question, now_ns)?;
        Ok(match wanted.format {
            Some(FormatName::Csv) => (query_csv(&answers), "text/csv; charset=utf-8"),
            _ => (query_object(&question, &answers).to_string(), "application/json"),
        })
    });
    let missing =
        || Error::NotFound("there is no hub; start one with `dwell hub --embedded`".into());
    let (text, kind) = read.await?.ok_or_else(missing)?;
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
