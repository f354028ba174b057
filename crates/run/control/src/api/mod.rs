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
mod served;
mod state;
mod stored;

pub use flows::search_json;
pub use served::{ProbeParts, Served};

use crate::access::Access;
use crate::answers::{AnswerMemory, NoMemory, SharedAnswer, until_sent};
use crate::connections::Connection;
use crate::history::History;
use crate::packets::Packets;
use crate::report::Client;
use crate::stored::Stores;
use answer::{Answer, Counted, Failure, MAX_BODY_OCTETS, failure, too_large};
use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::body::Body as _;
use served::{Api, HasToken, NO_PROBE, OF_PROBE, SearchPlaces};
use std::net::SocketAddr;
use std::sync::Arc;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

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
