//! What answers, and how it is: `/about`, `/health`, `/ready`, `/status`, `/history`, `/fields`, `/metrics`.

use super::answer::{Answer, Failure, answer, invalid, parameters};
use super::served::{Api, NO_REPORT, Served};
use crate::about::About;
use crate::fields::Fields;
use crate::history;
use crate::metrics;
use crate::report::Report;
use axum::extract::State;
use axum::extract::rejection::QueryRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use utoipa::ToSchema;

/// The process is alive.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// Always `alive`.
    status: &'static str,
}

/// Whether the probe does its work.
#[derive(Serialize, ToSchema)]
pub(super) struct Readiness {
    /// Whether every pipeline responds, every interface is up, and the probe is not ending.
    ready: bool,
    /// Why not.
    reasons: Vec<String>,
}

/// Figures and counters of the probe.
#[derive(Serialize, ToSchema)]
pub(super) struct Status {
    /// The figures of the last whole interval, as `weir probe --status json` prints them
    /// (weir help probe-guide); null before the first one has ended.
    #[schema(value_type = Option<Object>)]
    interval: Value,
    /// The ledger since the start, as `--stats` writes it (weir help metering).
    #[schema(value_type = Object)]
    ledger: Value,
    /// Pipelines that do not respond. Their counters are older, so the ledger may not balance.
    pipelines_without_response: Vec<String>,
    /// Why the probe is not ready, as `/ready` says it; empty if it is.
    not_ready: Vec<String>,
    /// When the probe started, ms since 1970.
    started_ms: u64,
}

/// What answers: a running probe, or weir view of what is stored
#[utoipa::path(get, path = "/about", responses(
    (status = 200, description = "It", body = About),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
pub(super) async fn about(State(api): State<Arc<Api>>, headers: HeaderMap) -> Answer {
    let stores = api.stores().await?;
    let transactions = api.stores_of_transactions().await?;
    let source = api.sources(&stores).into_iter().next();
    let of_transactions = || api.sources_of_transactions(&transactions).into_iter().next();
    let times = match &source.clone().or_else(of_transactions) {
        Some(source) => api.stores.times(source.clone()).await,
        None => None,
    };
    let (mode, inputs) = match &api.of {
        Served::View(view) => ("view", view.inputs.clone()),
        Served::Probe(_) => ("probe", api.client.snapshot().report.in_effect.inputs.clone()),
    };
    let missing = api.packets.missing();
    let about = About::new(mode, &inputs, [&stores, &transactions], source.as_ref(), times.as_ref(), missing);
    Ok(answer(StatusCode::OK, about.with(api.of.names().are_known(), api.access.has_session(&headers))))
}

/// Whether the process is alive
#[utoipa::path(get, path = "/health", responses(
    (status = 200, description = "It is", body = Health),
    (status = 400, description = "The path has no parameters", body = Failure),
))]
pub(super) async fn health() -> Response {
    answer(StatusCode::OK, Health { status: "alive" })
}

/// Whether the probe does its work: every pipeline responds, and every interface is up
#[utoipa::path(get, path = "/ready", responses(
    (status = 200, description = "It does", body = Readiness),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 503, description = "It does not", body = Readiness),
))]
pub(super) async fn ready(State(api): State<Arc<Api>>) -> Response {
    let reasons = match api.client.report().await {
        Some(snapshot) => reasons(&snapshot.report),
        None => vec![NO_REPORT.into()],
    };
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer(status, Readiness { ready: reasons.is_empty(), reasons })
}

/// Why a probe is not ready.
pub(super) fn reasons(report: &Report) -> Vec<String> {
    let down = report.interfaces.iter().filter(|(_, is_up)| !is_up && !report.is_ending);
    let down = down.map(|(interface, _)| format!("interface {interface} is down, or has no link"));
    let mut reasons = Vec::new();
    if report.is_ending {
        reasons.push("the probe is ending: it has stopped receiving".into());
    }
    for pipeline in report.pipelines.iter().filter(|_| !report.is_ending) {
        let name = &pipeline.name;
        match (pipeline.finished, pipeline.timed_out) {
            (true, _) => reasons.push(format!("pipeline {name}: its source has ended or failed")),
            (_, true) => reasons.push(format!("pipeline {name} does not respond: it waits for a pipe, or is blocked")),
            _ => {}
        }
    }
    reasons.extend(down);
    reasons
}

/// Figures of the last interval, and the ledger since the start
#[utoipa::path(get, path = "/status", responses(
    (status = 200, description = "The status", body = Status),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
pub(super) async fn status(State(api): State<Arc<Api>>) -> Answer {
    let snapshot = api.report().await?;
    let Report { ledger, pipelines, interval, .. } = &snapshot.report;
    let silent = pipelines.iter().filter(|pipeline| pipeline.timed_out).map(|pipeline| pipeline.name.clone());
    let status = Status {
        interval: interval.clone(),
        ledger: json!(ledger.json()),
        pipelines_without_response: silent.collect(),
        not_ready: reasons(&snapshot.report),
        started_ms: api.client.exchange.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
    };
    Ok(answer(StatusCode::OK, status))
}

/// Counters of each second of the last hour, since the start of the probe at most
#[utoipa::path(get, path = "/history", params(history::Query), responses(
    (status = 200, description = "The counters", body = history::Samples),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
))]
pub(super) async fn history_page(
    State(api): State<Arc<Api>>,
    query: Result<axum::extract::Query<history::Query>, QueryRejection>,
) -> Answer {
    let after = parameters(query)?.after().map_err(invalid)?;
    Ok(answer(StatusCode::OK, api.history.samples(after)))
}

/// All fields of flows: what `fields`, `where` and `sort` name
#[utoipa::path(get, path = "/fields", responses(
    (status = 200, description = "The fields", body = Fields),
    (status = 400, description = "The path has no parameters", body = Failure),
))]
pub(super) async fn fields() -> Response {
    answer(StatusCode::OK, Fields::all())
}

/// Metrics in the text format of Prometheus
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "The metrics", body = String, content_type = "text/plain"),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
pub(super) async fn metrics_page(State(api): State<Arc<Api>>) -> Answer {
    let snapshot = api.report().await?;
    let page = metrics::page(&snapshot.report, api.client.exchange.started);
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response())
}
