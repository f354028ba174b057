//! The packets of a flow (`/packets`), and its segments (`/explain`).

use super::answer::{Answer, Failure, Refusal, answer, failure, invalid, parameters};
use super::served::Api;
use crate::packets::{PacketError, PacketQuery, SegmentQuery, Segments};
use axum::extract::State;
use axum::extract::rejection::QueryRejection;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use std::sync::Arc;

/// The packets of a flow, as a capture file (pcapng): of the captures of weir view, or of the folders in which the
/// probe records. Up to the number of octets of --listen-packets. The headers weir-packets and weir-octets have how many
/// there are, weir-copies how many copies of other folders or captures were left out; weir-incomplete has all reasons
/// why there are not all, if that is so, and so does a comment in the file
#[utoipa::path(get, path = "/packets", params(PacketQuery), responses(
    (status = 200, description = "The packets", body = String, content_type = "application/x-pcapng"),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 404, description = "No packet of the flow was found", body = Failure),
    (status = 409, description = "There are no packets, or they cannot be read", body = Failure),
    (status = 429, description = "Another question is being answered", body = Failure),
    (status = 503, description = "The answer takes too long", body = Failure),
))]
pub(super) async fn packets_page(
    State(api): State<Arc<Api>>,
    query: Result<axum::extract::Query<PacketQuery>, QueryRejection>,
) -> Answer {
    let found = api.packets.find(parameters(query)?.question()?).await?;
    let is_shown = |character: &char| character.is_ascii() && !character.is_ascii_control();
    let text = |text: String| HeaderValue::from_str(&text).expect("printable ASCII is a value");
    let incomplete = found.incomplete.map(|why| text(why.chars().filter(is_shown).collect()));
    let head = [
        (CONTENT_TYPE, HeaderValue::from_static("application/x-pcapng")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"flow.pcapng\"")),
        (HeaderName::from_static("weir-packets"), found.packets.into()),
        (HeaderName::from_static("weir-octets"), found.octets.into()),
        (HeaderName::from_static("weir-copies"), found.copies.into()),
    ];
    let mut response = (head, found.capture).into_response();
    response.headers_mut().extend(incomplete.map(|why| (HeaderName::from_static("weir-incomplete"), why)));
    Ok(response)
}

/// The segments of a TCP connection, as weir tcp --explain prints them: of the captures of weir view, or of the folders in
/// which the probe records
#[utoipa::path(get, path = "/explain", params(SegmentQuery), responses(
    (status = 200, description = "The segments", body = Segments),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 404, description = "No packet of the connection was found", body = Failure),
    (status = 409, description = "There is no recorder and no capture, or they cannot be read again", body = Failure),
    (status = 429, description = "Another question is being answered", body = Failure),
    (status = 503, description = "The answer takes too long", body = Failure),
))]
pub(super) async fn explain_page(
    State(api): State<Arc<Api>>,
    query: Result<axum::extract::Query<SegmentQuery>, QueryRejection>,
) -> Answer {
    Ok(answer(StatusCode::OK, api.packets.explain(parameters(query)?.question()?).await?))
}

impl From<PacketError> for Refusal {
    fn from(error: PacketError) -> Self {
        match error {
            PacketError::Question(error) => invalid(error),
            PacketError::Missing(error) => failure(StatusCode::NOT_FOUND, error),
            PacketError::Source(error) => failure(StatusCode::CONFLICT, error),
            PacketError::Busy => {
                let error = "another question for packets is being answered; try again when it has ended";
                failure(StatusCode::TOO_MANY_REQUESTS, error)
            }
            PacketError::Unavailable(error) => failure(StatusCode::SERVICE_UNAVAILABLE, error),
        }
    }
}
