//! Answers: JSON, errors in plain words, and requests that cannot be read.

use crate::answers::NoMemory;
use crate::parameters::{InvalidQuery, Place};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::borrow::Cow;
use utoipa::ToSchema;

/// Octets of the body of a request.
pub(super) const MAX_BODY_OCTETS: usize = 16 << 10;

/// The answer to a request.
pub(super) type Answer = Result<Response, Refusal>;

/// Why a request is refused.
pub(super) struct Refusal(pub(super) StatusCode, pub(super) Failure);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        answer(self.0, self.1)
    }
}

impl From<InvalidQuery> for Refusal {
    fn from(error: InvalidQuery) -> Self {
        Self(StatusCode::BAD_REQUEST, Failure { error: error.to_string(), place: error.place() })
    }
}

/// The octets of an answer have their memory.
#[derive(Clone, Copy)]
pub(super) struct Counted;

/// An error in plain words.
#[derive(Serialize, ToSchema)]
pub(super) struct Failure {
    /// What is wrong.
    error: String,
    /// Where the parameter `where` is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
}

/// The result of a change.
#[derive(Serialize, ToSchema)]
pub(super) struct Outcome {
    /// What has happened.
    pub(super) result: String,
}

pub(super) fn json_text(body: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(body).expect("the types of answers are JSON");
    text.push(b'\n');
    text
}

pub(super) fn answer(status: StatusCode, body: impl Serialize) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], json_text(&body)).into_response()
}

/// An answer whose octets other clients get, too.
pub(super) fn shared(octets: Result<Bytes, NoMemory>) -> Response {
    octets.map_or_else(NoMemory::into_response, |octets| {
        (Extension(Counted), [(CONTENT_TYPE, "application/json")], octets).into_response()
    })
}

impl IntoResponse for NoMemory {
    fn into_response(self) -> Response {
        let refusal = failure(StatusCode::SERVICE_UNAVAILABLE, "too many answers have not been read; try again");
        (Extension(self), refusal).into_response()
    }
}

pub(super) fn failure(status: StatusCode, error: impl Into<Cow<'static, str>>) -> Refusal {
    let error: Cow<'static, str> = error.into();
    Refusal(status, Failure { error: error.into(), place: None })
}

pub(super) fn too_large() -> Refusal {
    failure(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {MAX_BODY_OCTETS} octets"))
}

/// The parameters of a request.
pub(super) fn parameters<T>(query: Result<axum::extract::Query<T>, QueryRejection>) -> Result<T, Refusal> {
    query.map(|query| query.0).map_err(|rejection| invalid(invalid_query(&rejection)))
}

/// The answer to a request that cannot be read.
pub(super) fn invalid(error: impl ToString) -> Refusal {
    failure(StatusCode::BAD_REQUEST, error.to_string())
}

/// Why the query of a request cannot be read. The library names a parameter between backticks, or before
/// a colon, and the known ones behind an unknown one.
pub(super) fn invalid_query(rejection: &QueryRejection) -> String {
    let text = rejection.body_text();
    let names: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    match names[..] {
        [name] if text.contains("duplicate field") => format!("{name}: it is there twice"),
        [name, ref known @ ..] if text.contains("unknown field") => {
            format!("{name}: there is no such parameter; there are: {}", known.join(", "))
        }
        _ => match text.strip_prefix("Failed to deserialize query string: ").and_then(|text| text.split_once(": ")) {
            Some((name, _)) => format!("{name}: this value is not valid (GET /openapi.json describes all parameters)"),
            None => "the query of the URL cannot be read: use NAME=VALUE, joined by &, in UTF-8".into(),
        },
    }
}

/// The answer to a body that cannot be read.
pub(super) fn unreadable(rejection: &BytesRejection) -> Refusal {
    let is_long = rejection.status() == StatusCode::PAYLOAD_TOO_LARGE;
    if is_long { too_large() } else { failure(rejection.status(), "the body ends early") }
}

pub(super) fn no_rules() -> Refusal {
    failure(StatusCode::CONFLICT, "the probe hands no packets on: start it with --rules")
}
