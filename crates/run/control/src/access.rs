//! Who may do what: a token for changes, TLS and the token for everything beyond loopback.
//!
//! On loopback, programs of this machine read without a token. A page in a browser of this machine
//! must not read through a name that points to 127.0.0.1 (DNS rebinding), so the `Host` of a request
//! without token has to be an IP address or `localhost`. A page of another site must not make the probe work either,
//! although it cannot read the answer: `Sec-Fetch-Site` and `Origin` have to be of the probe itself.
//!
//! The page itself (`page.rs`) has no data, and needs no token. A session (`sessions.rs`) stands for the token in
//! requests to read, which have to come from the page.

use crate::address::is_loopback;
use crate::error::{Error, LEAST_OCTETS, MOST_OCTETS, TLS_CERT, TLS_KEY, TOKEN_FILE};
use crate::page;
use crate::sessions::Sessions;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Where the page that asks is from, as the browser sees it.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The secret of those who may change the probe. Without `Debug`, so that no log has it.
pub(crate) struct Token(Vec<u8>);

impl Token {
    /// Reads a file of one line.
    ///
    /// # Errors
    /// The file cannot be read, it is another user's, other users may read it, or it has no valid token.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = |error| Error::File { option: TOKEN_FILE, path: path.into(), error };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let owner = metadata.uid();
        if ![0, rustix::process::geteuid().as_raw()].contains(&owner) {
            return Err(Error::TokenOwner { path: path.into(), owner });
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(Error::TokenReadable { path: path.into(), mode });
        }
        let mut text = Vec::new();
        file.take(MOST_OCTETS as u64 + 3).read_to_end(&mut text).map_err(failed)?;
        let token = text.strip_suffix(b"\n").unwrap_or(&text);
        let token = token.strip_suffix(b"\r").unwrap_or(token);
        let is_valid = (LEAST_OCTETS..=MOST_OCTETS).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
        if is_valid { Ok(Self(token.into())) } else { Err(Error::InvalidToken { path: path.into() }) }
    }

    /// The header that has it.
    pub fn header(&self) -> Vec<u8> {
        [b"Bearer ", self.0.as_slice()].concat()
    }

    /// Whether a request has the token. The time depends on the length only.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Some((scheme, token)) = value.as_bytes().split_at_checked(7) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(self.0.ct_eq(token))
    }
}

/// Who may read, who may change, and how the connection is protected.
pub struct Access {
    token: Option<Token>,
    sessions: Sessions,
    /// No probe is running.
    is_of_view: bool,
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

impl Access {
    /// Reads the files of token, certificate chain and key.
    ///
    /// # Errors
    /// A file cannot be used, or the address is not loopback and one of them is missing.
    pub fn load(address: SocketAddr, token: Option<&Path>, tls: Option<[&Path; 2]>) -> Result<Self, Error> {
        if !is_loopback(address) && (token.is_none() || tls.is_none()) {
            return Err(Error::NotLoopback(address));
        }
        let token = token.map(Token::read).transpose()?;
        Ok(Self {
            token,
            sessions: Sessions::default(),
            is_of_view: false,
            tls: tls.map(server_config).transpose()?.map(Arc::new),
        })
    }

    /// From now on refusals are those of a view.
    pub(crate) fn serves_view(&mut self) {
        self.is_of_view = true;
    }

    /// Fixes the port, which the name of the cookie has: cookies of all ports of a host go to each of them.
    pub(crate) fn listens_on(&mut self, port: u16) {
        self.sessions = Sessions::new(port, self.tls.is_some());
    }

    /// Begins a session, for a request that has the token. Returns its cookie.
    pub(crate) fn begin_session(&self) -> HeaderValue {
        self.sessions.begin()
    }

    /// Whether a request has the cookie of a session.
    pub(crate) fn has_session(&self, headers: &HeaderMap) -> bool {
        self.sessions.has(headers)
    }

    /// Ends the session of a request. Returns the cookie that removes its own.
    pub(crate) fn end_session(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        self.sessions.end(headers)
    }

    /// Whether a request has the token, or reads in a session that began with it.
    pub(crate) fn has_token(&self, method: &Method, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_some_and(|token| token.is_in(headers)) || self.is_in_session(method, headers)
    }

    /// Whether the page of the probe itself reads in a session.
    fn is_in_session(&self, method: &Method, headers: &HeaderMap) -> bool {
        is_reading(method) && !is_of_other_site(headers) && self.sessions.has(headers)
    }

    /// Whether a request that arrived at an address is permitted; otherwise status and reason.
    pub(crate) fn check(
        &self,
        address: SocketAddr,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), (StatusCode, &'static str)> {
        let is_change = !is_reading(method);
        // Host names of a certificate are fine beyond loopback.
        let is_beyond = !is_loopback(address);
        let may_read = || page::is_public(method, uri, headers) || self.is_in_session(method, headers);
        match &self.token {
            Some(token) if token.is_in(headers) => Ok(()),
            // The page ends its session without the token.
            Some(_) if is_end_of_session(method, uri) && !is_of_other_site(headers) && self.has_session(headers) => {
                Ok(())
            }
            Some(_) if is_change || is_beyond && !may_read() => Err((
                StatusCode::UNAUTHORIZED,
                "this request needs the header Authorization: Bearer TOKEN, with the token of --token-file",
            )),
            None if is_change && self.is_of_view => {
                Err((StatusCode::FORBIDDEN, "weir view shows what is stored, and permits no changes"))
            }
            None if is_change => {
                Err((StatusCode::FORBIDDEN, "the probe was started without --token-file, so it permits no changes"))
            }
            _ if is_of_other_site(headers) => Err((
                StatusCode::FORBIDDEN,
                "a page of another site asks; a request without token must not come from one",
            )),
            _ if is_beyond || is_own_host(uri, headers) => Ok(()),
            _ => Err((
                StatusCode::MISDIRECTED_REQUEST,
                "the header Host is neither an IP address nor localhost; a request without token needs that",
            )),
        }
    }
}

fn is_end_of_session(method: &Method, uri: &Uri) -> bool {
    *method == Method::DELETE && uri.path() == "/session"
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Whether a browser sends a request for a page of another site (Fetch Metadata; `Origin`). A page that a user opens,
/// and one that the probe serves, are of none.
fn is_of_other_site(headers: &HeaderMap) -> bool {
    let is_own_site = |value: &HeaderValue| matches!(value.as_bytes(), b"none" | b"same-origin");
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none()).map(HeaderValue::as_bytes);
    let is_own_origin = |value: &HeaderValue| {
        let origin = value.as_bytes();
        let origin = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        origin.is_some() && origin == host
    };
    !headers.get_all(SEC_FETCH_SITE).iter().all(is_own_site) || !headers.get_all(ORIGIN).iter().all(is_own_origin)
}

/// Whether a request names its host as an IP address or as `localhost`, or (HTTP/1.0) not at all.
fn is_own_host(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(HOST).iter().map(|value| value.to_str().unwrap_or("?"));
    let is_own = |host: &str| {
        let is_port = |(_, port): &(&str, &str)| port.bytes().all(|digit| digit.is_ascii_digit());
        let name = host.rsplit_once(':').filter(is_port).map_or(host, |(name, _)| name);
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        address.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
    };
    uri.authority().is_none_or(|authority| is_own(authority.as_str())) && values.all(is_own)
}

/// Why a file of PEM cannot be used.
fn failed(option: &'static str, path: &Path, error: pem::Error) -> Error {
    let reason = match error {
        pem::Error::Io(error) => return Error::File { option, path: path.into(), error },
        pem::Error::NoItemsFound if option == TLS_KEY => "there is no private key in it, as a block of PEM".into(),
        pem::Error::NoItemsFound => "there is no certificate in it, as a block of PEM".into(),
        error => error.to_string(),
    };
    Error::Pem { option, path: path.into(), reason }
}

fn server_config([certificates, key]: [&Path; 2]) -> Result<ServerConfig, Error> {
    let of_chain = |error| failed(TLS_CERT, certificates, error);
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificates)
        .and_then(|chain| chain.collect::<Result<_, _>>())
        .map_err(of_chain)?;
    if chain.is_empty() {
        return Err(of_chain(pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(TLS_KEY, key, error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth();
    Ok(config.with_single_cert(chain, key)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn a_token_file_is_private_and_long_enough() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |text: &[u8], mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map(|token| token.0)
        };
        assert_eq!(read(b"0123456789abcdef", 0o600).unwrap(), b"0123456789abcdef");
        assert_eq!(read(b"0123456789abcdef\r\n", 0o400).unwrap(), b"0123456789abcdef");
        for text in
            [&b""[..], b"\n", b"0123456789abcde\n", b"0123456789 abcdef", b"0123456789abcdef\n\n", &[b'x'; 1025]]
        {
            assert!(matches!(read(text, 0o600), Err(Error::InvalidToken { .. })), "{text:?}");
        }
        assert_eq!(read(&[b'x'; 1024], 0o600).unwrap().len(), 1024);
        for mode in [0o640, 0o604, 0o620, 0o610] {
            assert!(matches!(read(b"0123456789abcdef", mode), Err(Error::TokenReadable { .. })), "{mode:o}");
        }
        assert!(matches!(Token::read(&folder.path().join("none")), Err(Error::File { .. })));
    }

    #[test]
    fn only_the_token_permits_changes_and_reading_beyond_loopback() {
        let [here, beyond] = ["127.0.0.1:9477", "192.0.2.1:9477"].map(|address| address.parse().unwrap());
        let [with_token, without] = [Some(Token(b"0123456789abcdef".into())), None].map(|token| Access {
            token,
            sessions: Sessions::default(),
            is_of_view: false,
            tls: None,
        });
        let check = |access: &Access, address, method: Method, value: &str| {
            let headers = [(AUTHORIZATION, value), (HOST, "127.0.0.1:1")];
            let headers = headers.into_iter().filter(|(_, value)| !value.is_empty());
            let headers = headers.map(|(name, value)| (name, value.parse().unwrap())).collect();
            access.check(address, &method, &Uri::from_static("/"), &headers).err().map(|(status, _)| status.as_u16())
        };
        let right = "Bearer 0123456789abcdef";
        for (address, method, value, expected) in [
            (here, Method::GET, "", None),
            (here, Method::HEAD, "", None),
            (here, Method::POST, "", Some(401)),
            (here, Method::OPTIONS, "", Some(401)),
            (here, Method::POST, right, None),
            (here, Method::DELETE, "bearer 0123456789abcdef", None),
            (beyond, Method::GET, "", Some(401)),
            (beyond, Method::GET, right, None),
            (beyond, Method::GET, "Bearer 0123456789abcdeX", Some(401)),
            (beyond, Method::GET, "Bearer 0123456789abcde", Some(401)),
            (beyond, Method::GET, "Bearer 0123456789abcdeff", Some(401)),
            (beyond, Method::GET, "Bearer", Some(401)),
            (beyond, Method::GET, "Basic 0123456789abcdef", Some(401)),
        ] {
            assert_eq!(check(&with_token, address, method, value), expected, "{address} {value}");
        }
        assert_eq!(check(&without, here, Method::GET, ""), None);
        assert_eq!(check(&without, here, Method::PUT, right), Some(403));
    }

    #[test]
    fn pages_of_other_sites_are_refused_without_token() {
        let is_other = |headers: &[(&'static str, &str)]| {
            let of = |&(name, value): &(&'static str, &str)| (name.parse().unwrap(), value.parse().unwrap());
            is_of_other_site(&[("host", "127.0.0.1:9477")].iter().chain(headers).map(of).collect())
        };
        for own in [
            &[][..],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:9477")],
            &[("origin", "https://127.0.0.1:9477")],
        ] {
            assert!(!is_other(own), "{own:?}");
        }
        for other in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
            &[("origin", "null")],
            &[("origin", "http://attacker.example")],
            &[("origin", "http://127.0.0.1:9478")],
            &[("origin", "http://127.0.0.1:9477"), ("origin", "http://attacker.example")],
        ] {
            assert!(is_other(other), "{other:?}");
        }
    }

    #[test]
    fn names_of_other_hosts_are_refused_without_token() {
        let check = |uri: &'static str, hosts: &[&str]| {
            let headers = hosts.iter().map(|host| (HOST, host.parse().unwrap())).collect();
            is_own_host(&Uri::from_static(uri), &headers)
        };
        for host in ["127.0.0.1", "127.0.0.1:9477", "localhost:9477", "LOCALHOST", "[::1]:9477", "192.0.2.1"] {
            assert!(check("/metrics", &[host]), "{host}");
        }
        assert!(check("/metrics", &[]) && check("http://127.0.0.1:1/metrics", &["127.0.0.1"]));
        for host in ["attacker.example", "attacker.example:9477", "127.0.0.1.example", "localhost.example", "", "::1]"]
        {
            assert!(!check("/metrics", &[host]), "{host}");
        }
        assert!(!check("/metrics", &["127.0.0.1", "attacker.example"]));
        assert!(!check("http://attacker.example/metrics", &["127.0.0.1"]));
    }
}
