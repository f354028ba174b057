//! The paths of the server. `/openapi.json` describes them; it is made from the same list as the
//! routes.

use crate::about::{About, ViewOf};
use crate::access::Access;
use crate::answers::{AnswerMemory, NoMemory, SharedAnswer, until_sent};
use crate::connections::Connection;
use crate::doctor::DoctorFindings;
use crate::fields::Fields;
use crate::flows;
use crate::history::{self, History};
use crate::in_effect::{Lists, RulesState, Timeouts};
use crate::json::object;
use crate::metrics;
use crate::overrides::{self, FlowName, NamedFlow, NewOverride, OverrideList, OverrideState};
use crate::packets::{AskPackets, PacketError, PacketQuery, Packets, SegmentQuery, Segments};
use crate::page;
use crate::parameters::{InvalidQuery, Place};
use crate::recent::RecentFlows;
use crate::report::{Client, REPORT_AGE, Report, Snapshot};
use crate::stored::{self, FlowSource, NoAnswer, Records, Stores};
use axum::body::{Bytes, to_bytes};
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_TYPE, SET_COOKIE, VARY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::InvalidUri;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::body::Body as _;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use weir_flow::FlowRecord;
use weir_probe::{FoundFlows, Overrides, RecordEnricher};

/// Octets of the body of a request.
const MAX_BODY_OCTETS: usize = 16 << 10;
/// How long a request to reload waits for the result.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(15);
const NO_REPORT: &str = "the probe has not reported for 3 s: its main thread is busy or blocked";
const INDEX: &str = "\
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
GET  /fields        all fields of flows, with their meanings
GET  /rules         the rules in effect, and what each has done
GET  /lists         files of networks, places and tags in effect
GET  /timeouts      timeouts in effect
GET  /doctor        what is wrong with the settings of the machine and the NICs, and what to do
GET  /overrides     overrides in effect: flows about which an IDS decides in place of the rules
POST /overrides     adds one, DELETE takes one back; both need the token
POST /reload        reads the configuration and the lists again; needs the token
POST /session       begins a session of a browser; needs the token
GET  /openapi.json  describes this interface

In a browser, this address is a page.
";
/// In place of the first line of [`INDEX`].
const TITLE_OF_VIEW: &str = "Weir: stored flows, served by weir view";
const NO_PROBE: &str = "no probe is running: weir view shows stored flows, by GET /about, /fields, /stored, /packets and \
                        /explain";
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

/// The answer to a request.
type Answer = Result<Response, Refusal>;

/// Why a request is refused.
struct Refusal(StatusCode, Failure);

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
    /// What is wrong with the machine.
    pub doctor: DoctorFindings,
}

impl Served {
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

/// The octets of an answer have their memory.
#[derive(Clone, Copy)]
struct Counted;

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
        self.list.get(&self.memory, has_token, serves, || (changes, json_text(&overrides::list(overrides))))
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

/// An error in plain words.
#[derive(Serialize, ToSchema)]
struct Failure {
    /// What is wrong.
    error: String,
    /// Where the parameter `where` is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
}

/// The process is alive.
#[derive(Serialize, ToSchema)]
struct Health {
    /// Always `alive`.
    status: &'static str,
}

/// Whether the probe does its work.
#[derive(Serialize, ToSchema)]
struct Readiness {
    /// Whether every pipeline responds.
    ready: bool,
    /// Why not.
    reasons: Vec<String>,
}

/// Figures and counters of the probe.
#[derive(Serialize, ToSchema)]
struct Status {
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

/// The result of a change.
#[derive(Serialize, ToSchema)]
struct Outcome {
    /// What has happened.
    result: String,
}

fn json_text(body: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(body).expect("the types of answers are JSON");
    text.push(b'\n');
    text
}

fn answer(status: StatusCode, body: impl Serialize) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], json_text(&body)).into_response()
}

/// An answer whose octets other clients get, too.
fn shared(octets: Result<Bytes, NoMemory>) -> Response {
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

fn failure(status: StatusCode, error: impl Into<Cow<'static, str>>) -> Refusal {
    let error: Cow<'static, str> = error.into();
    Refusal(status, Failure { error: error.into(), place: None })
}

/// The routes, and the document that describes them.
fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(index))
        .routes(routes!(about))
        .routes(routes!(health))
        .routes(routes!(ready))
        .routes(routes!(status))
        .routes(routes!(fields))
        .routes(routes!(metrics_page))
        .routes(routes!(rules))
        .routes(routes!(lists))
        .routes(routes!(timeouts))
        .routes(routes!(doctor))
        .routes(routes!(list_overrides, add_override, remove_override))
        .routes(routes!(reload))
        .routes(routes!(session))
        .routes(routes!(openapi))
        .route("/assets/{name}", get(asset))
        .route_layer(middleware::from_fn(refuse_parameters))
        .routes(routes!(history_page))
        .routes(routes!(flows_page))
        .routes(routes!(stored_page))
        .routes(routes!(packets_page))
        .routes(routes!(explain_page))
}

/// Of the requests to these paths, only `DELETE` has parameters.
async fn refuse_parameters(request: Request, next: Next) -> Answer {
    match request.uri().query() {
        Some(query) if !query.is_empty() && request.method() != Method::DELETE => {
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

fn too_large() -> Refusal {
    failure(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {MAX_BODY_OCTETS} octets"))
}

/// The list of paths, as text; to a browser (`Accept: text/html`), the page
#[utoipa::path(get, path = "/", responses(
    (status = 200, description = "The list", body = String, content_type = "text/plain"),
    (status = 400, description = "The path has no parameters", body = Failure),
))]
async fn index(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    match (page::is_for_browser(&headers), api.is_view()) {
        (true, _) => page::html(),
        (false, true) => ([(VARY, "accept")], index_of_view()).into_response(),
        (false, false) => ([(VARY, "accept")], INDEX).into_response(),
    }
}

/// The list of paths without those that need a probe.
fn index_of_view() -> String {
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

/// What answers: a running probe, or weir view of what is stored
#[utoipa::path(get, path = "/about", responses(
    (status = 200, description = "It", body = About),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
async fn about(State(api): State<Arc<Api>>) -> Answer {
    let stores = api.stores().await?;
    let transactions = api.stores_of_transactions().await?;
    let source = api.sources(&stores).into_iter().next();
    let of_transactions = || api.sources_of_transactions(&transactions).into_iter().next();
    let starts_ns = match &source.clone().or_else(of_transactions) {
        Some(source) => api.stores.starts_ns(source.clone()).await,
        None => None,
    };
    let (mode, inputs) = match &api.of {
        Served::View(view) => ("view", view.inputs.clone()),
        Served::Probe(_) => ("probe", api.client.snapshot().report.in_effect.inputs.clone()),
    };
    let missing = api.packets.missing();
    let about = About::new(mode, &inputs, [&stores, &transactions], source.as_ref(), starts_ns, missing);
    Ok(answer(StatusCode::OK, about))
}

/// A script, a style sheet or an image of the page.
async fn asset(headers: HeaderMap, Path(name): Path<String>) -> Answer {
    match page::asset(&name) {
        None => Err(failure(StatusCode::NOT_FOUND, "no such path; GET / lists all")),
        Some(_) if !page::takes_gzip(&headers) => {
            Err(failure(StatusCode::NOT_ACCEPTABLE, "assets of the page are there with Content-Encoding: gzip only"))
        }
        Some(asset) => Ok(asset),
    }
}

/// Whether the process is alive
#[utoipa::path(get, path = "/health", responses(
    (status = 200, description = "It is", body = Health),
    (status = 400, description = "The path has no parameters", body = Failure),
))]
async fn health() -> Response {
    answer(StatusCode::OK, Health { status: "alive" })
}

/// Whether the probe does its work: every pipeline responds, and none has ended
#[utoipa::path(get, path = "/ready", responses(
    (status = 200, description = "It does", body = Readiness),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 503, description = "It does not", body = Readiness),
))]
async fn ready(State(api): State<Arc<Api>>) -> Response {
    let reasons = match api.client.report().await {
        Some(snapshot) => reasons(&snapshot.report),
        None => vec![NO_REPORT.into()],
    };
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer(status, Readiness { ready: reasons.is_empty(), reasons })
}

/// Why a probe is not ready.
fn reasons(report: &Report) -> Vec<String> {
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
async fn status(State(api): State<Arc<Api>>) -> Answer {
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
async fn history_page(
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
async fn fields() -> Response {
    answer(StatusCode::OK, Fields::all())
}

/// Metrics in the text format of Prometheus
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "The metrics", body = String, content_type = "text/plain"),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
async fn metrics_page(State(api): State<Arc<Api>>) -> Answer {
    let snapshot = api.report().await?;
    let page = metrics::page(&snapshot.report, api.client.exchange.started);
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response())
}

/// Current flows: the open records with their figures so far, or sums of them by fields
#[utoipa::path(get, path = "/flows", params(flows::Query), responses(
    (status = 200, description = "The flows or groups", body = flows::Flows),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 429, description = "Another search is running", body = Failure),
    (status = 503, description = "The probe is ending, or too many requests wait", body = Failure),
))]
async fn flows_page(
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

/// The parameters of a request.
fn parameters<T>(query: Result<axum::extract::Query<T>, QueryRejection>) -> Result<T, Refusal> {
    query.map(|query| query.0).map_err(|rejection| invalid(invalid_query(&rejection)))
}

/// The answer to a request that cannot be read.
fn invalid(error: impl ToString) -> Refusal {
    failure(StatusCode::BAD_REQUEST, error.to_string())
}

/// Why the query of a request cannot be read. The library names a parameter between backticks, or before
/// a colon, and the known ones behind an unknown one.
fn invalid_query(rejection: &QueryRejection) -> String {
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

/// One search at a time: a thread that meters does one. One with token replaces one without.
struct SearchPlaces {
    without_token: Semaphore,
    with_token: Semaphore,
    /// Number of searches with token since the start.
    begun_with_token: AtomicU64,
}

impl Default for SearchPlaces {
    fn default() -> Self {
        let [without_token, with_token] = [(); 2].map(|()| Semaphore::new(1));
        Self { without_token, with_token, begun_with_token: AtomicU64::new(0) }
    }
}

/// Searches among the current flows.
async fn search(
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

/// Flows that have ended, or sums of them by fields and intervals: those of a store, or the last ones in memory
#[utoipa::path(get, path = "/stored", params(stored::Query), responses(
    (status = 200, description = "The flows or groups", body = stored::StoredFlows),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 409, description = "The probe keeps no flows, or its store cannot be read", body = Failure),
    (status = 429, description = "Another question is being answered", body = Failure),
    (status = 503, description = "The probe does not report, or the answer takes too long", body = Failure),
))]
async fn stored_page(
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

/// The packets of a flow, as a capture file (pcapng): of the captures of weir view, or of the folders in which the
/// probe records. Up to the number of octets of --listen-packets. The headers weir-packets and weir-octets have how many
/// there are; weir-incomplete says why there are not all, if that is so, and so does a comment in the file
#[utoipa::path(get, path = "/packets", params(PacketQuery), responses(
    (status = 200, description = "The packets", body = String, content_type = "application/x-pcapng"),
    (status = 400, description = "A parameter is invalid", body = Failure),
    (status = 404, description = "No packet of the flow was found", body = Failure),
    (status = 409, description = "There are no packets, or they cannot be read", body = Failure),
    (status = 429, description = "Another question is being answered", body = Failure),
    (status = 503, description = "The answer takes too long", body = Failure),
))]
async fn packets_page(
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
async fn explain_page(
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

/// The rules in effect: the content of the file, and what each rule has done since the start
#[utoipa::path(get, path = "/rules", responses(
    (status = 200, description = "The rules", body = RulesState),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "The probe has no rules, or none is running", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
async fn rules(State(api): State<Arc<Api>>, Extension(HasToken(has_token)): Extension<HasToken>) -> Answer {
    let snapshot = api.report().await?;
    let rules = snapshot.report.in_effect.rules.as_ref().ok_or_else(no_rules)?;
    let of_report = Arc::downgrade(&snapshot);
    let serves = |of_copy: &Weak<Snapshot>, _| of_copy.ptr_eq(&of_report);
    let make = || (of_report.clone(), json_text(&rules.state(&snapshot.report.ledger)));
    Ok(shared(api.rules.get(&api.memory, has_token, serves, make)))
}

/// Files of networks, places and tags in effect
#[utoipa::path(get, path = "/lists", responses(
    (status = 200, description = "The files", body = Lists),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
async fn lists(State(api): State<Arc<Api>>) -> Answer {
    let snapshot = api.report().await?;
    Ok(answer(StatusCode::OK, Lists { lists: snapshot.report.in_effect.lists.clone() }))
}

/// Timeouts in effect
#[utoipa::path(get, path = "/timeouts", responses(
    (status = 200, description = "The timeouts", body = Timeouts),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
async fn timeouts(State(api): State<Arc<Api>>) -> Answer {
    Ok(answer(StatusCode::OK, api.report().await?.report.in_effect.timeouts))
}

/// What weir doctor found about the machine and the interfaces of the probe when it started
#[utoipa::path(get, path = "/doctor", responses(
    (status = 200, description = "The findings", body = DoctorFindings),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
))]
async fn doctor(State(api): State<Arc<Api>>) -> Answer {
    Ok(answer(StatusCode::OK, &api.probe()?.doctor))
}

/// Overrides in effect
#[utoipa::path(get, path = "/overrides", responses(
    (status = 200, description = "The overrides", body = OverrideList),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "The probe has no rules, or none is running", body = Failure),
    (status = 503, description = "Too many answers have not been read", body = Failure),
))]
async fn list_overrides(State(api): State<Arc<Api>>, Extension(HasToken(has_token)): Extension<HasToken>) -> Answer {
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
async fn add_override(
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
async fn remove_override(
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

fn no_rules() -> Refusal {
    failure(StatusCode::CONFLICT, "the probe hands no packets on: start it with --rules")
}

/// The answer to a body that cannot be read.
fn unreadable(rejection: &BytesRejection) -> Refusal {
    let is_long = rejection.status() == StatusCode::PAYLOAD_TOO_LARGE;
    if is_long { too_large() } else { failure(rejection.status(), "the body ends early") }
}

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
async fn reload(State(api): State<Arc<Api>>, body: Result<Bytes, BytesRejection>) -> Answer {
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
async fn session(State(api): State<Arc<Api>>) -> Response {
    let cookie = api.access.begin_session();
    let result = "the session has begun; it ends after 12 hours, or when weir ends".into();
    ([(SET_COOKIE, cookie)], answer(StatusCode::OK, Outcome { result })).into_response()
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
        let expected = ["/about", "/health", "/stored", "/packets", "/explain", "/fields", "/session", "/openapi.json"];
        assert_eq!(shown, expected, "{of_view}");
        assert!(of_view.contains("records=, store=") && of_view.ends_with("a page.\n"), "{of_view}");
    }
}
