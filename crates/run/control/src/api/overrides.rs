//! Overrides of single flows: `/overrides`.

use super::answer::{Answer, Failure, Refusal, answer, failure, invalid, parameters, shared, unreadable};
use super::flows::search;
use super::served::{Api, HasToken};
use crate::flows;
use crate::json::object;
use crate::overrides::{self, FlowName, NamedFlow, NewOverride, OverrideList, OverrideState};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::http::StatusCode;
use std::sync::Arc;
use weir_probe::FoundFlows;

/// Overrides in effect
#[utoipa::path(get, path = "/overrides", responses(
    (status = 200, description = "The overrides", body = OverrideList),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "The probe has no rules, or none is running", body = Failure),
    (status = 503, description = "Too many answers have not been read", body = Failure),
))]
pub(super) async fn list_overrides(
    State(api): State<Arc<Api>>,
    Extension(HasToken(has_token)): Extension<HasToken>,
) -> Answer {
    Ok(shared(api.list(api.overrides()?, has_token)))
}

/// Decides about a flow in place of its rules, for a time. It replaces an earlier override of the flow, or the oldest of
/// 16384
#[utoipa::path(post, path = "/overrides", security(("token" = [])), request_body = NewOverride, responses(
    (status = 200, description = "It has replaced an earlier override", body = OverrideState),
    (status = 201, description = "Added", body = OverrideState),
    (status = 400, description = "The body is invalid, or there are parameters", body = Failure),
    (status = 401, description = "Without the token", body = Failure),
    (status = 403, description = "The probe has no token", body = Failure),
    (status = 404, description = "No current flow has this Community ID", body = Failure),
    (status = 409, description = "The probe has no rules, or none is running", body = Failure),
    (status = 413, description = "The body is too long", body = Failure),
    (status = 503, description = "The probe is ending, too many requests wait, or another search is running", body = Failure),
    (status = 504, description = "Not all flows were searched in time for this Community ID", body = Failure),
))]
pub(super) async fn add_override(
    State(api): State<Arc<Api>>,
    Extension(has_token): Extension<HasToken>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let overrides = api.overrides()?;
    let body = body.map_err(|rejection| unreadable(&rejection))?;
    let mut json = serde_json::Deserializer::from_slice(&body);
    let new: Result<NewOverride, _> = object(&mut json).and_then(|new| json.end().map(|()| new));
    let new = new.map_err(|error| invalid(format!("the body is no override: {error}")))?;
    let (action, time) = new.read().map_err(invalid)?;
    let tuple = match new.flow.read().map_err(invalid)? {
        NamedFlow::Tuple(tuple) => tuple,
        NamedFlow::CommunityId(id) => {
            let found =
                search(&api, flows::Query::of_community_id(id), has_token).await.map_err(|Refusal(status, failure)| {
                    // It can be tried again as it is.
                    let is_busy = status == StatusCode::TOO_MANY_REQUESTS;
                    Refusal(if is_busy { StatusCode::SERVICE_UNAVAILABLE } else { status }, failure)
                });
            let (_, FoundFlows { records, is_complete, .. }) = found?;
            let missing = || match is_complete {
                true => failure(
                    StatusCode::NOT_FOUND,
                    "no current flow has this Community ID; name it by addresses, ports and protocol",
                ),
                false => failure(
                    StatusCode::GATEWAY_TIMEOUT,
                    "not all flows were searched in time; name it by addresses, ports and protocol",
                ),
            };
            let (_, record) = records.first().ok_or_else(missing)?;
            overrides::tuple_of_community_id(record).map_err(invalid)?
        }
    };
    let (added, replaces) = overrides.add(tuple, action, time);
    let status = if replaces { StatusCode::OK } else { StatusCode::CREATED };
    Ok(answer(status, OverrideState::from(&*added)))
}

/// Takes an override back. The rules decide about the flow again
#[utoipa::path(delete, path = "/overrides", security(("token" = [])), params(FlowName), responses(
    (status = 200, description = "The override as it was", body = OverrideState),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 401, description = "Without the token", body = Failure),
    (status = 403, description = "The probe has no token", body = Failure),
    (status = 404, description = "The flow has none", body = Failure),
    (status = 409, description = "The probe has no rules, or none is running", body = Failure),
))]
pub(super) async fn remove_override(
    State(api): State<Arc<Api>>,
    flow: Result<axum::extract::Query<FlowName>, QueryRejection>,
) -> Answer {
    let overrides = api.overrides()?;
    let tuple = match parameters(flow)?.read().map_err(invalid)? {
        NamedFlow::Tuple(tuple) => Some(tuple),
        NamedFlow::CommunityId(id) => overrides::find(overrides, &id).map_err(invalid)?,
    };
    let removed = tuple.and_then(|tuple| overrides.remove(&tuple));
    let none = || failure(StatusCode::NOT_FOUND, "this flow has no override; GET /overrides lists all");
    Ok(answer(StatusCode::OK, OverrideState::from(&*removed.ok_or_else(none)?)))
}
