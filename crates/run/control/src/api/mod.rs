//! The paths of the server. `/openapi.json` describes them; it is made from the same list as the
//! routes.

mod answer;
mod changes;
mod flows;
mod in_effect;
mod names;
mod overrides;
mod packets;
mod page;
mod state;
mod stored;

pub use flows::search_json;

use crate::about::ViewOf;
use crate::access::Access;
use crate::answers::{AnswerMemory, NoMemory, SharedAnswer, until_sent};
use crate::connections::Connection;
use crate::doctor::DoctorFindings;
use crate::history::History;
use crate::names::AskNames;
use crate::overrides::list;
use crate::packets::{AskPackets, Packets};
use crate::recent::RecentFlows;
use crate::report::{Client, REPORT_AGE, Snapshot};
use crate::stored::{FlowSource, Stores};
use answer::{Answer, Counted, Failure, Refusal, failure, json_text, too_large};
use axum::body::{Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use flows::SearchPlaces;
use hyper::body::Body as _;
use overrides::no_rules;
use page::NO_PROBE;
use state::NO_REPORT;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use weir_probe::{Overrides, RecordEnricher};

/// Octets of the body of a request.
const MAX_BODY_OCTETS: usize = 16 << 10;
/// Paths that need a running probe.
const OF_PROBE: [&str; 11] = [
    "/ready",
    "/status",
    "/history",
    "/metrics",
    "/flows",
    "/rules",
    "/lists",
    "/timeouts",
    "/doctor",
    "/overrides",
    "/reload",
];

struct Api {
    client: Client,
    access: Access,
    address: SocketAddr,
    document: Bytes,
    of: Served,
    searches: SearchPlaces,
    stores: Stores,
    packets: Packets,
    /// The last hour.
    history: Arc<History>,
    /// Memory of answers.
    memory: AnswerMemory,
    /// `/rules` of a report.
    rules: SharedAnswer<Weak<Snapshot>>,
    /// `/overrides`, with the number of changes.
    list: SharedAnswer<u64>,
}

/// What the server shows.
pub enum Served {
    Probe(ProbeParts),
    View(ViewOf),
}

/// What the server uses of a probe, beside its reports.
#[derive(Default)]
pub struct ProbeParts {
    /// Adds places and tags to records, as for sinks.
    pub enricher: Option<RecordEnricher>,
    /// Only with rules.
    pub overrides: Option<Overrides>,
    /// The last flows that have ended, if they are kept.
    pub recent: Option<Arc<RecentFlows>>,
    /// What answers questions for packets.
    pub packets: AskPackets,
    /// What knows names.
    pub names: AskNames,
    /// What is wrong with the machine.
    pub doctor: DoctorFindings,
}

impl Served {
    /// What knows names.
    fn names(&self) -> &AskNames {
        match self {
            Self::Probe(probe) => &probe.names,
            Self::View(view) => &view.names,
        }
    }

    /// What answers questions for packets.
    pub fn packets(&self) -> AskPackets {
        match self {
            Self::Probe(probe) => probe.packets.clone(),
            Self::View(view) => view.packets.clone(),
        }
    }
}

/// Whether a request has the token.
#[derive(Clone, Copy)]
struct HasToken(bool);

impl Api {
    /// The last report of the probe.
    async fn report(&self) -> Result<Arc<Snapshot>, Refusal> {
        let silent = || failure(StatusCode::SERVICE_UNAVAILABLE, NO_REPORT);
        self.client.report().await.ok_or_else(silent)
    }

    fn probe(&self) -> Result<&ProbeParts, Refusal> {
        match &self.of {
            Served::Probe(probe) => Ok(probe),
            Served::View(_) => Err(failure(StatusCode::CONFLICT, NO_PROBE)),
        }
    }

    fn overrides(&self) -> Result<&Overrides, Refusal> {
        self.probe()?.overrides.as_ref().ok_or_else(no_rules)
    }

    fn is_view(&self) -> bool {
        matches!(self.of, Served::View(_))
    }

    /// The stores, in the order of the parameter `store`.
    async fn stores(&self) -> Result<Vec<PathBuf>, Refusal> {
        match &self.of {
            Served::View(view) => Ok(view.stores.clone()),
            Served::Probe(_) => Ok(self.report().await?.report.in_effect.stores.clone()),
        }
    }

    /// The same of transactions.
    async fn stores_of_transactions(&self) -> Result<Vec<PathBuf>, Refusal> {
        match &self.of {
            Served::View(view) => Ok(view.transactions.clone()),
            Served::Probe(_) => Ok(self.report().await?.report.in_effect.transactions.clone()),
        }
    }

    /// What transactions are read from, by the parameter `store`. A view has one source of all files.
    fn sources_of_transactions(&self, stores: &[PathBuf]) -> Vec<FlowSource> {
        match &self.of {
            Served::View(_) if stores.is_empty() => Vec::new(),
            Served::View(_) => vec![FlowSource::Files(stores.to_vec())],
            Served::Probe(_) => stores.iter().map(|path| FlowSource::Files(vec![path.clone()])).collect(),
        }
    }

    /// What flows that have ended are read from, by the parameter `store`.
    fn sources(&self, stores: &[PathBuf]) -> Vec<FlowSource> {
        match &self.of {
            // Transactions alone were given to it.
            Served::View(view) if view.files.is_empty() => Vec::new(),
            Served::View(view) => vec![FlowSource::Files(view.files.clone())],
            Served::Probe(probe) if stores.is_empty() => probe.recent.iter().cloned().map(FlowSource::Memory).collect(),
            Served::Probe(_) => stores.iter().map(|path| FlowSource::Files(vec![path.clone()])).collect(),
        }
    }

    /// The list of overrides. A copy serves for [`REPORT_AGE`], unless one has changed, or a report has
    /// newer figures.
    fn list(&self, overrides: &Overrides, has_token: bool) -> Result<Bytes, NoMemory> {
        let (changes, reported) = (overrides.changes(), self.client.snapshot().published);
        let serves =
            |of_copy: &u64, made: Instant| *of_copy == changes && reported <= made && made.elapsed() < REPORT_AGE;
        self.list.get(&self.memory, has_token, serves, || (changes, json_text(&list(overrides))))
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Weir",
        description = "Health, status, metrics, flows and control of a running weir probe; stored flows of weir view. \
                       Beyond loopback, each request needs TLS and the token. Changes always need the token."
    ),
    modifiers(&BearerToken)
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// The routes, and the document that describes them.
fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(page::index))
        .routes(routes!(state::about))
        .routes(routes!(state::health))
        .routes(routes!(state::ready))
        .routes(routes!(state::status))
        .routes(routes!(state::fields))
        .routes(routes!(state::metrics_page))
        .routes(routes!(in_effect::rules))
        .routes(routes!(in_effect::lists))
        .routes(routes!(in_effect::timeouts))
        .routes(routes!(in_effect::doctor))
        .routes(routes!(overrides::list_overrides, overrides::add_override, overrides::remove_override))
        .routes(routes!(changes::reload))
        .routes(routes!(changes::session, changes::end_session))
        .routes(routes!(openapi))
        .route("/assets/{name}", get(page::asset))
        .route_layer(middleware::from_fn(refuse_parameters))
        .routes(routes!(state::history_page))
        .routes(routes!(flows::flows_page))
        .routes(routes!(stored::stored_page))
        .routes(routes!(names::names_page))
        .routes(routes!(packets::packets_page))
        .routes(routes!(packets::explain_page))
}

/// Of the requests to these paths, only `DELETE /overrides` has parameters.
async fn refuse_parameters(request: Request, next: Next) -> Answer {
    match request.uri().query() {
        Some(query)
            if !query.is_empty() && (request.method() != Method::DELETE || request.uri().path() != "/overrides") =>
        {
            Err(failure(StatusCode::BAD_REQUEST, "this path has no parameters; remove what follows the ? of the URL"))
        }
        _ => Ok(next.run(request).await),
    }
}

/// All paths, their limits and who may use them.
pub fn router(
    client: Client,
    access: Access,
    address: SocketAddr,
    of: Served,
    stores: Stores,
    packets: Packets,
    history: Arc<History>,
) -> Router {
    let (router, document) = routes().split_for_parts();
    let document = document.to_pretty_json().expect("the document is JSON");
    let api = Arc::new(Api {
        client,
        access,
        address,
        document: document.into(),
        of,
        searches: SearchPlaces::default(),
        stores,
        packets,
        history,
        memory: AnswerMemory::default(),
        rules: SharedAnswer::default(),
        list: SharedAnswer::default(),
    });
    router
        .fallback(async || failure(StatusCode::NOT_FOUND, "no such path; GET / lists all"))
        .method_not_allowed_fallback(async || {
            failure(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods; see the header Allow")
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_OCTETS))
        .layer(middleware::from_fn_with_state(api.clone(), guard))
        .with_state(api)
}

/// Refuses requests that are not permitted or too large, before their path is looked at, and those for
/// which there is no place or memory.
async fn guard(
    State(api): State<Arc<Api>>,
    Extension(connection): Extension<Arc<Connection>>,
    mut request: Request,
    next: Next,
) -> Response {
    let has_token = api.access.has_token(request.method(), request.headers());
    let Some(answering) = connection.answer(has_token).await else {
        let refusal = failure(StatusCode::SERVICE_UNAVAILABLE, "too many requests; try again");
        return without_caching(([(CONNECTION, "close")], refusal).into_response());
    };
    request.extensions_mut().insert(HasToken(has_token));
    let response = match api.access.check(api.address, request.method(), request.uri(), request.headers()) {
        Err((status, reason)) => {
            let mut response = failure(status, reason).into_response();
            if status == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
        Ok(()) if OF_PROBE.contains(&request.uri().path()) && api.probe().is_err() => {
            failure(StatusCode::CONFLICT, NO_PROBE).into_response()
        }
        Ok(()) if request.body().size_hint().lower() > MAX_BODY_OCTETS as u64 => too_large().into_response(),
        Ok(()) => next.run(request).await,
    };
    let (head, body) = response.into_parts();
    // It is there as a whole, and is not copied.
    let octets = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let is_counted = head.extensions.get::<Counted>().is_some();
    let octets = if is_counted { Ok(octets) } else { api.memory.counted(octets, has_token) };
    let is_refused = octets.is_err() || head.extensions.get::<NoMemory>().is_some();
    if is_refused && !has_token {
        // There is memory for the next one.
        connection.close_stalled();
    }
    without_caching(match octets {
        Ok(octets) => Response::from_parts(head, until_sent(octets, answering).into()),
        Err(no_memory) => no_memory.into_response(),
    })
}

fn without_caching(mut response: Response) -> Response {
    // Assets of the page have another one.
    response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Describes this interface
#[utoipa::path(get, path = "/openapi.json", responses(
    (status = 200, description = "OpenAPI 3.1", body = Object),
    (status = 400, description = "The path has no parameters", body = Failure),
))]
async fn openapi(State(api): State<Arc<Api>>) -> Response {
    ([(CONTENT_TYPE, "application/json")], api.document.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use super::page::{INDEX, index_of_view};
    use super::*;

    #[test]
    fn the_index_lists_what_the_document_has() {
        let document = routes().split_for_parts().1;
        let paths: Vec<&str> = document.paths.paths.keys().map(String::as_str).filter(|path| *path != "/").collect();
        let mut listed: Vec<&str> = INDEX
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1).filter(|word| word.starts_with('/')))
            .collect();
        listed.sort_unstable();
        // Its methods have several lines.
        listed.dedup();
        assert_eq!(listed, paths);
        let of_view = index_of_view();
        let shown: Vec<&str> =
            of_view.lines().filter_map(|line| line.split(' ').find(|word| word.starts_with('/'))).collect();
        let expected =
            ["/about", "/health", "/stored", "/packets", "/explain", "/names", "/fields", "/session", "/openapi.json"];
        assert_eq!(shown, expected, "{of_view}");
        assert!(of_view.contains("records=, store=") && of_view.ends_with("a page.\n"), "{of_view}");
    }
}
