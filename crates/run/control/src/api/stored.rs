//! Flows that have ended: `/stored`.

use super::answer::{Answer, Failure, failure, invalid, parameters};
use super::served::Api;
use crate::stored::{self, NoAnswer, Records};
use axum::extract::State;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use std::sync::Arc;

/// Flows that have ended, or sums of them by fields and intervals: those of a store, or the last ones in memory
#[utoipa::path(get, path = "/stored", params(stored::Query), responses(
    (status = 200, description = "The flows or groups", body = stored::StoredFlows),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 409, description = "The probe keeps no flows, or its store cannot be read", body = Failure),
    (status = 429, description = "Another question is being answered", body = Failure),
    (status = 503, description = "The probe does not report, or the answer takes too long", body = Failure),
))]
pub(super) async fn stored_page(
    State(api): State<Arc<Api>>,
    query: Result<axum::extract::Query<stored::Query>, QueryRejection>,
) -> Answer {
    let question = parameters(query)?.question(api.is_view())?;
    let sources = match question.records {
        Records::Flows => api.sources(&api.stores().await?),
        Records::Transactions => api.sources_of_transactions(&api.stores_of_transactions().await?),
    };
    let octets = async { api.stores.answer(question.source_among(sources, api.is_view())?, question).await };
    match octets.await {
        Ok(octets) => Ok(([(CONTENT_TYPE, "application/json")], octets).into_response()),
        Err(NoAnswer::Conflict(error)) => Err(failure(StatusCode::CONFLICT, error)),
        Err(NoAnswer::Invalid(error)) => Err(invalid(error)),
        Err(NoAnswer::Busy) => {
            let error = "another question is being answered; try again when it has ended";
            Err(failure(StatusCode::TOO_MANY_REQUESTS, error))
        }
        Err(NoAnswer::Unavailable(error)) => Err(failure(StatusCode::SERVICE_UNAVAILABLE, error)),
    }
}
