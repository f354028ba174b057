//! The page of the probe for browsers: files that are embedded in the program, if `make web` has built them.
//!
//! Out: `index.html` at `/`, and its script, style sheet and image in `/assets`, compressed when they were built. The
//! names of assets have a hash of their content, so that browsers keep them. They hold no data of the probe, so that
//! no token is needed to load them; the page then asks the paths of this server for its data as any other client.

use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    VARY,
};
use axum::http::{HeaderMap, HeaderName, Method, Uri};
use axum::response::{IntoResponse, Response};
use weir_export::Compression;

/// Name and content of each file.
type Files = &'static [(&'static str, &'static [u8])];

const FILES: Files = include!(concat!(env!("OUT_DIR"), "/page.rs"));
/// Where the assets are.
const ASSETS: &str = "/assets/";
/// Nothing comes from or goes to another host, and no script or style stands in the page itself.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Of assets: their names change with their content.
const FOR_A_YEAR: &str = "private, max-age=31536000, immutable";
/// In place of the page.
const MISSING: &str = "\
<!doctype html>
<html lang=\"en\">
<title>Weir</title>
<p>This weir was built without its page: build it with Node 20 or newer by <code>make web</code>, then build weir
again. <a href=\"/openapi.json\">openapi.json</a> describes what this address answers to programs.</p>
</html>
";

/// Whether a client is a browser that opens a page.
pub fn is_for_browser(headers: &HeaderMap) -> bool {
    mentions(headers, ACCEPT, "text/html")
}

/// Whether a client reads assets as they are stored. Without the header, it reads every coding (RFC 9110).
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    !headers.contains_key(ACCEPT_ENCODING) || mentions(headers, ACCEPT_ENCODING, "gzip")
}

fn mentions(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    headers.get_all(name).iter().any(|value| value.to_str().is_ok_and(|value| value.contains(word)))
}

/// Whether a request is for the page or an asset, which have no data of the probe.
pub fn is_public(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let is_page = uri.path() == "/" && is_for_browser(headers);
    matches!(*method, Method::GET | Method::HEAD) && (is_page || uri.path().starts_with(ASSETS))
}

/// The page, or how to get it.
pub fn html() -> Response {
    html_of(FILES)
}

fn html_of(files: Files) -> Response {
    let page = file(files, "index.html").unwrap_or(MISSING.as_bytes());
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (VARY, "accept"),
    ];
    (headers, page).into_response()
}

/// An asset.
pub fn asset(name: &str) -> Option<Response> {
    asset_of(FILES, name)
}

fn asset_of(files: Files, name: &str) -> Option<Response> {
    let content = file(files, &format!("{name}.gz"))?;
    let kind = match name.rsplit_once('.')?.1 {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_ENCODING, "gzip"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, FOR_A_YEAR),
    ];
    Some((headers, content).into_response())
}

/// A file that is embedded.
pub fn embedded(name: &str) -> Option<&'static [u8]> {
    file(FILES, name)
}

/// The content of the compressed asset whose name begins and ends so.
pub fn plain_asset(start: &str, end: &str) -> Option<String> {
    let is_asset = |name: &str| name.starts_with(start) && name.ends_with(&format!("{end}.gz"));
    let (_, content) = FILES.iter().find(|(name, _)| is_asset(name))?;
    String::from_utf8(Compression::Gzip.decompress(content).ok()?).ok()
}

fn file(files: Files, name: &str) -> Option<&'static [u8]> {
    files.iter().find(|(found, _)| *found == name).map(|(_, content)| *content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    /// Headers and body of an answer.
    fn parts(response: Response) -> (HeaderMap, Vec<u8>) {
        let (head, body) = response.into_parts();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        (head.headers, runtime.block_on(to_bytes(body, usize::MAX)).unwrap().to_vec())
    }

    #[test]
    fn a_program_without_the_page_says_how_to_get_it() {
        let (headers, body) = parts(html_of(&[]));
        assert!(String::from_utf8(body).unwrap().contains("make web"));
        assert_eq!(headers[CONTENT_TYPE], "text/html; charset=utf-8");
        assert!(asset_of(&[], "page.js").is_none());
    }

    #[test]
    fn a_program_with_the_page_has_it_as_it_was_built() {
        let files: Files = &[("index.html", b"<html>"), ("page-1.css.gz", b"2"), ("page-1.js.gz", b"1")];
        let (headers, body) = parts(html_of(files));
        assert_eq!((&body[..], &headers[CONTENT_SECURITY_POLICY]), (&b"<html>"[..], &POLICY.parse().unwrap()));
        for (name, kind, content) in [("page-1.js", "text/javascript", b"1"), ("page-1.css", "text/css", b"2")] {
            let (headers, body) = parts(asset_of(files, name).unwrap());
            assert_eq!(body, content);
            assert!(headers[CONTENT_TYPE].to_str().unwrap().starts_with(kind));
            assert_eq!(
                (&headers[CONTENT_ENCODING], &headers[CACHE_CONTROL]),
                (&"gzip".parse().unwrap(), &FOR_A_YEAR.parse().unwrap())
            );
        }
        for name in ["page-1.js.gz", "index.html", "", "../index.html", "page-2.js"] {
            assert!(asset_of(files, name).is_none(), "{name}");
        }
    }

    #[test]
    fn the_embedded_page_names_embedded_assets_and_runs_no_inline_script() {
        let Some(page) = file(FILES, "index.html") else {
            assert!(FILES.is_empty());
            return eprintln!("SKIPPED: the page is not built (make web)");
        };
        let page = std::str::from_utf8(page).unwrap();
        let names: Vec<&str> = page.split('"').filter_map(|part| part.strip_prefix(ASSETS)).collect();
        assert_eq!(names.len(), 3, "{page}");
        assert!(names.iter().all(|name| asset(name).is_some()), "{page}");
        assert!(page.contains("<noscript>") && !page.contains("<style") && page.matches("<script").count() == 1);
        assert!(page.contains("<script type=\"module\" src="));
        assert!(FILES.iter().map(|(_, content)| content.len()).sum::<usize>() <= 100_000);
    }

    #[test]
    fn only_the_page_itself_is_public() {
        let html: HeaderMap = [(ACCEPT, "text/html,*/*".parse().unwrap())].into_iter().collect();
        let is_public = |method, uri, headers: &HeaderMap| is_public(&method, &Uri::from_static(uri), headers);
        assert!(is_public(Method::GET, "/", &html) && is_public(Method::HEAD, "/assets/a.js", &HeaderMap::new()));
        assert!(!is_public(Method::GET, "/", &HeaderMap::new()) && !is_public(Method::POST, "/assets/a", &html));
        for uri in ["/status", "/assets", "/flows?assets/", "//assets/", "/openapi.json"] {
            assert!(!is_public(Method::GET, uri, &html), "{uri}");
        }
    }
}
