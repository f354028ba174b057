//! The list of paths as text, and the page with its assets.

use super::answer::{Answer, Failure, failure};
use super::served::{Api, OF_PROBE};
use crate::page;
use axum::extract::{Path, State};
use axum::http::header::VARY;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

pub(super) const INDEX: &str = "\
Weir, a flow-based network monitoring probe

GET  /about         what answers: a probe or weir view, its inputs and stores
GET  /health        whether it is alive
GET  /ready         whether every pipeline responds and every interface is up; status 503 with the reasons if not
GET  /status        figures of the last interval, and the ledger since the start
GET  /history       counters of each second of the last hour: ?after=
GET  /metrics       metrics for Prometheus
GET  /flows         current flows, or sums of them: ?where=EXPRESSION, by=, sum=, sort=, top=, fields=, community_id=
GET  /stored        flows that have ended, or sums of them: ?where=, from=, to=, by=, every=, count=, sum=,
                    numbers=, sort=, top=, offset=, fields=, records=, store=
GET  /packets       the packets of a flow as a capture, if there is a recorder or a capture: ?flow=, from=, to=
GET  /explain       the segments of a TCP flow, if there is a recorder or a capture: ?flow=, at=, top=
GET  /names         names of hosts and services, with --names: ?of=192.0.2.1,443/tcp
GET  /fields        all fields of flows, with their meanings
GET  /rules         the rules in effect, and what each has done
GET  /lists         files of networks, places and tags in effect
GET  /timeouts      timeouts in effect
GET  /doctor        what is wrong with the settings of the machine and the NICs, and what to do
GET  /overrides     overrides in effect: flows about which an IDS decides in place of the rules
POST /overrides     adds one, DELETE takes one back; both need the token
POST /reload        reads the configuration and the lists again; needs the token
POST /session       begins a session of a browser; needs the token. DELETE ends it
GET  /openapi.json  describes this interface

In a browser, this address is a page.
";
/// In place of the first line of [`INDEX`].
pub(super) const TITLE_OF_VIEW: &str = "Weir: stored flows, served by weir view";

/// The list of paths, as text; to a browser (`Accept: text/html`), the page
#[utoipa::path(get, path = "/", responses(
    (status = 200, description = "The list", body = String, content_type = "text/plain"),
    (status = 400, description = "The path has no parameters", body = Failure),
))]
pub(super) async fn index(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    match (page::is_for_browser(&headers), api.is_view()) {
        (true, _) => page::html(),
        (false, true) => ([(VARY, "accept")], index_of_view()).into_response(),
        (false, false) => ([(VARY, "accept")], INDEX).into_response(),
    }
}

/// The list of paths without those that need a probe.
pub(super) fn index_of_view() -> String {
    let mut text = TITLE_OF_VIEW.to_owned() + "\n";
    let mut is_shown = true;
    for line in INDEX.lines().skip(1) {
        // Lines of a path follow one with its name.
        let path = line.split([' ', ',']).find(|word| word.starts_with('/'));
        is_shown = if line.starts_with(' ') { is_shown } else { path.is_none_or(|path| !OF_PROBE.contains(&path)) };
        if is_shown {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// A script, a style sheet or an image of the page.
pub(super) async fn asset(headers: HeaderMap, Path(name): Path<String>) -> Answer {
    match page::asset(&name) {
        None => Err(failure(StatusCode::NOT_FOUND, "no such path; GET / lists all")),
        Some(_) if !page::takes_gzip(&headers) => {
            Err(failure(StatusCode::NOT_ACCEPTABLE, "assets of the page are there with Content-Encoding: gzip only"))
        }
        Some(asset) => Ok(asset),
    }
}
