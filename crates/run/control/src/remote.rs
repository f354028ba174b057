//! The other end: requests to the HTTP interface of a running probe.

use crate::access::Token;
use crate::error::{CA, Error};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Poll interval of the flag that ends a request.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
/// Octets of an answer that are read at most.
const MAX_ANSWER: usize = 8 << 20;

/// Where a probe listens: `http://HOST:PORT` or `https://HOST:PORT`.
#[derive(Clone, Debug)]
pub struct ProbeUrl {
    is_https: bool,
    host: String,
    port: u16,
}

/// A text is no [`ProbeUrl`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write http://HOST:PORT or https://HOST:PORT, without a path")]
pub struct InvalidUrl;

impl FromStr for ProbeUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let uri: Uri = text.parse().map_err(|_| InvalidUrl)?;
        let is_https = uri.scheme_str() == Some("https");
        let is_plain = uri.path_and_query().is_none_or(|path| path == "/") && !text.contains('@');
        match (uri.scheme_str(), uri.host(), uri.port_u16()) {
            (Some("http" | "https"), Some(host), Some(port)) if is_plain => {
                Ok(Self { is_https, host: host.into(), port })
            }
            _ => Err(InvalidUrl),
        }
    }
}

impl std::fmt::Display for ProbeUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http{}://{}:{}", if self.is_https { "s" } else { "" }, self.host, self.port)
    }
}

impl ProbeUrl {
    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether requests stay on this machine.
    fn is_loopback(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Whether requests are encrypted.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// The host without the brackets of an IPv6 address.
    fn host(&self) -> &str {
        self.host.trim_matches(['[', ']'])
    }
}

/// A running probe that is asked over HTTP, one request after the other.
pub struct RemoteProbe {
    url: ProbeUrl,
    token: Option<Token>,
    tls: Option<TlsConnector>,
    /// Time of a request, with the connection that it may need.
    limit: Duration,
    /// Always there, until the drop.
    runtime: Option<Runtime>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Drop for RemoteProbe {
    fn drop(&mut self) {
        // Not waiting for a name server that does not answer.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// What a probe answers.
pub struct RemoteAnswer {
    /// The status.
    pub status: StatusCode,
    /// The JSON, or null.
    pub body: Value,
}

impl RemoteAnswer {
    /// Why the request was refused.
    pub fn error(&self) -> String {
        let none = || format!("status {} and no reason: is it the --listen address of weir?", self.status);
        self.body["error"].as_str().map_or_else(none, String::from)
    }
}

impl RemoteProbe {
    /// Reads the token, if the requests need one, and the certificates that the probe of an `https` URL has to be
    /// signed by. Connects with the first request. Each request has this time.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn new(
        url: ProbeUrl,
        token: Option<&Path>,
        certificates: Option<&Path>,
        limit: Duration,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(Error::Client)?;
        let tls = certificates.filter(|_| url.is_https).map(client_config).transpose()?;
        if token.is_some() && !url.is_https && !url.is_loopback() {
            return Err(Error::TokenInClear(url.to_string()));
        }
        let token = token.map(Token::read).transpose()?;
        Ok(Self { url, token, tls, limit, runtime: Some(runtime), connection: None })
    }

    /// From now on each request has this time.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sends a request with a body, and reads the answer. Ends when `stop` is set.
    ///
    /// # Errors
    /// The probe cannot be reached, or does not answer in time. `InvalidData`: it answers, but its
    /// certificate is not accepted, or one end uses TLS and the other does not.
    pub fn request(&mut self, method: Method, path: &str, body: &str, stop: &AtomicBool) -> io::Result<RemoteAnswer> {
        let Self { url, token, tls, limit, runtime, connection } = self;
        let Some(runtime) = runtime else { return Err(io::ErrorKind::NotConnected.into()) };
        runtime.block_on(async {
            let request = || {
                let host = format!("{}:{}", url.host, url.port);
                let request = Request::builder().method(method.clone()).uri(path).header(HOST, host);
                let with_token = match &*token {
                    Some(token) => request.header(AUTHORIZATION, token.header()),
                    None => request,
                };
                with_token.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).map_err(io::Error::other)
            };
            let whole = async {
                // The probe closes a connection after some time, perhaps just now.
                if let Some(mut open) = connection.take()
                    && let Ok(answer) = send(&mut open, request()?).await
                {
                    *connection = Some(open);
                    return Ok(answer);
                }
                let mut new = connect(url, tls.as_ref()).await?;
                let answer = send(&mut new, request()?).await?;
                *connection = Some(new);
                Ok(answer)
            };
            let (mut whole, end) = (pin!(whole), Instant::now() + *limit);
            loop {
                match timeout(STOP_INTERVAL, whole.as_mut()).await {
                    Ok(result) => return result,
                    Err(_) if stop.load(Ordering::Relaxed) => return Err(io::ErrorKind::Interrupted.into()),
                    Err(_) if Instant::now() >= end => return Err(io::ErrorKind::TimedOut.into()),
                    Err(_) => {}
                }
            }
        })
    }
}

async fn connect(url: &ProbeUrl, tls: Option<&TlsConnector>) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect((url.host(), url.port)).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => handshake(stream).await,
        Some(tls) => {
            let name = ServerName::try_from(url.host().to_owned());
            let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            handshake(tls.connect(name, stream).await?).await
        }
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // An error of the connection is that of its request.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn send(open: &mut SendRequest<Full<Bytes>>, request: Request<Full<Bytes>>) -> io::Result<RemoteAnswer> {
    open.ready().await.map_err(io::Error::other)?;
    let (head, body) = open.send_request(request).await.map_err(unanswered)?.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(io::Error::other)?.to_bytes();
    Ok(RemoteAnswer { status: head.status, body: serde_json::from_slice(&body).unwrap_or_default() })
}

fn unanswered(error: hyper::Error) -> io::Error {
    // A server that expects TLS answers with an alert of TLS, which is no HTTP.
    if error.is_parse() {
        let reason = "it does not answer in HTTP; if it expects TLS, write https:// and add --ca FILE";
        return io::Error::new(io::ErrorKind::InvalidData, reason);
    }
    io::Error::other(error)
}

fn client_config(certificates: &Path) -> Result<TlsConnector, Error> {
    let failed = |reason: String| Error::Pem { option: CA, path: certificates.into(), reason };
    let mut roots = RootCertStore::empty();
    let all = CertificateDer::pem_file_iter(certificates).map_err(|error| failed(error.to_string()))?;
    for certificate in all {
        roots.add(certificate.map_err(|error| failed(error.to_string()))?)?;
    }
    if roots.is_empty() {
        return Err(failed("no certificate in it".into()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_scheme_host_and_port() {
        for url in ["http://127.0.0.1:9477", "https://probe.example:1", "http://[::1]:9477", "http://localhost:1/"] {
            assert_eq!(url.parse::<ProbeUrl>().unwrap().to_string(), url.trim_end_matches('/'));
        }
        assert_eq!("http://[::1]:1".parse::<ProbeUrl>().unwrap().host(), "::1");
        for url in
            ["", "9477", "127.0.0.1:9477", "http://127.0.0.1", "ftp://a:1", "http://a:1/overrides", "http://u@a:1"]
        {
            assert!(url.parse::<ProbeUrl>().is_err(), "{url}");
        }
    }
}
