//! Names of hosts and services: `/names`.

use super::answer::{Answer, Failure, answer, failure, parameters};
use super::served::Api;
use crate::names::{Names, Query};
use axum::extract::State;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use std::sync::Arc;

/// Names of hosts and services, with --names: of hosts from answers of DNS in the traffic, which their sender can forge,
/// and from /etc/hosts; of services, from a list of usual ports. What has no name is not in the answer
#[utoipa::path(get, path = "/names", params(Query), responses(
    (status = 200, description = "The names", body = Names),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 409, description = "Names are not known: it was started without --names", body = Failure),
))]
pub(super) async fn names_page(
    State(api): State<Arc<Api>>,
    query: Result<axum::extract::Query<Query>, QueryRejection>,
) -> Answer {
    let items = parameters(query)?.items()?;
    let unknown = || failure(StatusCode::CONFLICT, "names are not known: start it with --names");
    Ok(answer(StatusCode::OK, api.of.names().of(items).ok_or_else(unknown)?))
}
