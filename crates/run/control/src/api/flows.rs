//! Current flows: `/flows`, and searches among them.

use super::answer::{Answer, Failure, Refusal, failure, invalid_query, parameters};
use super::served::{Api, HasToken, SearchPlaces};
use crate::flows;
use axum::Extension;
use axum::extract::State;
use axum::extract::rejection::QueryRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::uri::InvalidUri;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_flow::FlowRecord;
use weir_probe::FoundFlows;

/// Current flows: the open records with their figures so far, or sums of them by fields
#[utoipa::path(get, path = "/flows", params(flows::Query), responses(
    (status = 200, description = "The flows or groups", body = flows::Flows),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 429, description = "Another search is running", body = Failure),
    (status = 503, description = "The probe is ending, or too many requests wait", body = Failure),
))]
pub(super) async fn flows_page(
    State(api): State<Arc<Api>>,
    Extension(has_token): Extension<HasToken>,
    query: Result<axum::extract::Query<flows::Query>, QueryRejection>,
) -> Answer {
    let (search, found) = search(&api, parameters(query)?, has_token).await?;
    Ok(([(CONTENT_TYPE, "application/json")], search.json(found)).into_response())
}

/// The answer to `GET /flows?QUERY` if a probe had these flows, or why the query is refused. Fuzz targets call it: it
/// reads the query as the server does.
///
/// # Errors
/// The query is invalid: the text that a client gets.
#[doc(hidden)]
pub fn search_json(query: &str, records: &[FlowRecord]) -> Result<Vec<u8>, String> {
    let uri: Uri = format!("/flows?{query}").parse().map_err(|error: InvalidUri| error.to_string())?;
    let query = axum::extract::Query::<flows::Query>::try_from_uri(&uri).map_err(|error| invalid_query(&error))?;
    let search = query.0.search(None).map_err(|error| error.to_string())?;
    Ok(search.json_of(records))
}

/// Searches among the current flows.
pub(super) async fn search(
    api: &Api,
    query: flows::Query,
    HasToken(has_token): HasToken,
) -> Result<(flows::Search, FoundFlows), Refusal> {
    let busy = || failure(StatusCode::TOO_MANY_REQUESTS, "another search is running; try again when it has ended");
    let search = query.search(api.probe()?.enricher.clone())?;
    let SearchPlaces { without_token, with_token, begun_with_token } = &api.searches;
    let place = if has_token { with_token } else { without_token };
    let _place = place.try_acquire().map_err(|_| busy())?;
    if !has_token && with_token.available_permits() == 0 {
        return Err(busy());
    }
    let begun = begun_with_token.fetch_add(has_token.into(), Ordering::Relaxed);
    let Some(answers) = api.client.search_flows(search.search.clone()) else {
        return Err(failure(StatusCode::SERVICE_UNAVAILABLE, "the probe is ending, or too many requests wait"));
    };
    let found = search.found(answers).await;
    // Threads that had not answered have dropped it.
    let is_replaced = !has_token && begun_with_token.load(Ordering::Relaxed) != begun;
    if is_replaced { Err(busy()) } else { Ok((search, found)) }
}
