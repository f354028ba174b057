//! Sessions of browsers: a cookie in place of the token, for reading.
//!
//! In: a request that has the token. Out: a random identifier, which the browser keeps where no script reads it and
//! sends with requests of the page itself only. The token is in no cookie, no URL and no storage of the browser. At
//! most [`MAX_SESSIONS`] are kept, in memory, each for [`SESSION_TIME`].

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use tokio_rustls::rustls::crypto::ring;

/// Sessions at a time. One more replaces the oldest one.
const MAX_SESSIONS: usize = 64;
/// How long a session lasts.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);

/// The sessions of a server.
#[derive(Default)]
pub struct Sessions {
    /// Name of the cookie.
    name: String,
    /// Whether the cookie goes over TLS only.
    is_secure: bool,
    /// Identifiers, and when they end.
    open: Mutex<VecDeque<(String, Instant)>>,
}

impl Sessions {
    /// Those of a port: a browser sends the cookies of all ports of a host to each of them.
    pub fn new(port: u16, is_secure: bool) -> Self {
        Self { name: format!("weir-{port}"), is_secure, open: Mutex::default() }
    }

    /// Begins one. Returns its cookie.
    pub fn begin(&self) -> HeaderValue {
        let mut octets = [0; 32];
        ring::default_provider().secure_random.fill(&mut octets).expect("the system has random numbers");
        let id = octets.iter().fold(String::new(), |mut id, octet| {
            let _ = write!(id, "{octet:02x}");
            id
        });
        let secure = if self.is_secure { "; Secure" } else { "" };
        let age = SESSION_TIME.as_secs();
        let cookie = format!("{}={id}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}", self.name);
        self.add(id, Instant::now());
        cookie.parse().expect("it has visible characters only")
    }

    fn add(&self, id: String, now: Instant) {
        let mut open = self.open.lock();
        open.retain(|(_, end)| *end > now);
        while open.len() >= MAX_SESSIONS {
            open.pop_front();
        }
        open.push_back((id, now + SESSION_TIME));
    }

    /// Ends those whose cookie a request has. Returns the cookie that removes it; `None` if it has none.
    pub fn end(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let ids = self.ids(headers);
        let mut open = self.open.lock();
        let before = open.len();
        open.retain(|(of_open, _)| !ids.iter().any(|id| bool::from(of_open.as_bytes().ct_eq(id.as_bytes()))));
        if open.len() == before {
            return None;
        }
        let secure = if self.is_secure { "; Secure" } else { "" };
        let cookie = format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict{secure}", self.name);
        Some(cookie.parse().expect("it has visible characters only"))
    }

    /// The identifiers of a request.
    fn ids<'a>(&self, headers: &'a HeaderMap) -> Vec<&'a str> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let cookies = cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        cookies.filter(|(name, _)| *name == self.name).take(MAX_SESSIONS).map(|(_, id)| id).collect()
    }

    /// Whether a request has the cookie of one.
    pub fn has(&self, headers: &HeaderMap) -> bool {
        self.has_at(headers, Instant::now())
    }

    fn has_at(&self, headers: &HeaderMap, now: Instant) -> bool {
        let open = self.open.lock();
        let is_open = |id: &str| {
            open.iter().any(|(of_open, end)| *end > now && bool::from(of_open.as_bytes().ct_eq(id.as_bytes())))
        };
        self.ids(headers).into_iter().any(is_open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str) -> HeaderMap {
        [(COOKIE, cookie.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_session_is_a_random_cookie_of_its_port_that_scripts_and_other_sites_do_not_have() {
        let sessions = Sessions::new(9477, false);
        let [first, second] = [(); 2].map(|()| sessions.begin().to_str().unwrap().to_owned());
        let (cookie, rest) = first.split_once(';').unwrap();
        assert_eq!(rest, " Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
        assert!(cookie.starts_with("weir-9477=") && cookie.len() == 74 && !second.starts_with(cookie), "{cookie}");
        assert!(sessions.has(&headers(cookie)) && sessions.has(&headers(&format!("a=b; {cookie}"))));
        let id = cookie.split_once('=').unwrap().1;
        for wrong in ["", "weir-9477", "weir-9477=", "weir-9477=0", &format!("weir-9478={id}"), &cookie[..70]] {
            assert!(!sessions.has(&headers(wrong)), "{wrong}");
        }
        let ended = sessions.end(&headers(&second)).unwrap();
        assert_eq!(ended, "weir-9477=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
        assert!(!sessions.has(&headers(&second)) && sessions.end(&headers(&second)).is_none());
        assert!(sessions.has(&headers(cookie)), "the others go on");
        assert!(!sessions.has(&HeaderMap::new()) && !Sessions::new(9477, false).has(&headers(cookie)));
        assert!(Sessions::new(1, true).begin().to_str().unwrap().ends_with("; Secure"));
    }

    #[test]
    fn sessions_end_and_are_bounded() {
        let sessions = Sessions::new(1, false);
        let now = Instant::now();
        let has = |id: usize, after| sessions.has_at(&headers(&format!("weir-1={id}")), now + after);
        (0..=MAX_SESSIONS).for_each(|id| sessions.add(id.to_string(), now));
        assert!(!has(0, Duration::ZERO) && has(1, Duration::ZERO) && has(MAX_SESSIONS, Duration::ZERO));
        assert!(!has(1, SESSION_TIME));
        sessions.add("new".into(), now + SESSION_TIME);
        assert_eq!(sessions.open.lock().len(), 1);
    }
}
