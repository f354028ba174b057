//! What the token permits beside overrides: `/reload`, `/session`.

use super::answer::{Answer, Failure, Outcome, answer, failure, unreadable};
use super::served::Api;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a request to reload waits for the result.
pub(super) const RELOAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Reads the configuration file and the lists again, as the signal SIGHUP does
#[utoipa::path(post, path = "/reload", security(("token" = [])), responses(
    (status = 200, description = "Reloaded", body = Outcome),
    (status = 202, description = "The reload takes longer; the log will have its result", body = Outcome),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 401, description = "Without the token", body = Failure),
    (status = 403, description = "The probe has no token", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 413, description = "The body is too long", body = Failure),
    (status = 422, description = "The file is invalid or changes too much; nothing has changed", body = Failure),
    (status = 503, description = "The probe is ending, or too many requests wait", body = Failure),
))]
pub(super) async fn reload(State(api): State<Arc<Api>>, body: Result<Bytes, BytesRejection>) -> Answer {
    body.map_err(|rejection| unreadable(&rejection))?;
    let busy = || failure(StatusCode::SERVICE_UNAVAILABLE, "the probe is ending, or too many requests to reload wait");
    let result = api.client.reload().ok_or_else(busy)?;
    match timeout(RELOAD_TIMEOUT, result).await {
        Ok(Ok(Ok(result))) => Ok(answer(StatusCode::OK, Outcome { result })),
        Ok(Ok(Err(error))) => Err(failure(StatusCode::UNPROCESSABLE_ENTITY, error)),
        Ok(Err(_)) => Err(failure(StatusCode::SERVICE_UNAVAILABLE, "the probe is ending")),
        Err(_) => {
            let result = "the reload has not ended after 15 s; the log will have its result";
            Ok(answer(StatusCode::ACCEPTED, Outcome { result: result.into() }))
        }
    }
}

/// Begins a session: the answer has a cookie that permits what the token permits to read, for 12 hours
#[utoipa::path(post, path = "/session", security(("token" = [])), responses(
    (status = 200, description = "Begun", body = Outcome),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 401, description = "Without the token", body = Failure),
    (status = 403, description = "The probe has no token", body = Failure),
    (status = 413, description = "The body is too long", body = Failure),
))]
pub(super) async fn session(State(api): State<Arc<Api>>) -> Response {
    let cookie = api.access.begin_session();
    let result = "the session has begun; it ends after 12 hours, or when weir ends".into();
    ([(SET_COOKIE, cookie)], answer(StatusCode::OK, Outcome { result })).into_response()
}

/// Ends the session whose cookie the request has
#[utoipa::path(delete, path = "/session", responses(
    (status = 200, description = "Ended", body = Outcome),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 401, description = "Without a session and without the token", body = Failure),
    (status = 403, description = "The probe has no token", body = Failure),
    (status = 404, description = "The request has the token, and no session", body = Failure),
))]
pub(super) async fn end_session(State(api): State<Arc<Api>>, headers: HeaderMap) -> Answer {
    let none = || failure(StatusCode::NOT_FOUND, "this request has no session");
    let cookie = api.access.end_session(&headers).ok_or_else(none)?;
    let outcome = Outcome { result: "the session has ended".into() };
    Ok(([(SET_COOKIE, cookie)], answer(StatusCode::OK, outcome)).into_response())
}
