//! Accepts connections and serves them, on one thread.
//!
//! Every connection has a place among [`MAX_CONNECTIONS`] and a time, after which it is closed
//! whatever its client does. One more connection is answered with status 503 and closed. A client
//! that sends its request or reads its answer slowly takes its own time only.

use crate::access::Access;
use crate::api;
use crate::error::Error;
use crate::report::{Control, Report, connect};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use weir_ledger::Timing;
use weir_probe::{CpuAffinity, Overrides, RecordEnricher};

/// Open connections. With the files and sockets of a probe they are far from the usual limit of
/// 1024 descriptors.
pub const MAX_CONNECTIONS: usize = 64;
/// Octets of the headers of a request, and of the buffer of a connection.
pub const MAX_HEADER_OCTETS: usize = 16 << 10;
/// Pause when the system refuses to accept a connection, for example because no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The answer to one connection too many.
const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n\
                    Connection: close\r\nContent-Length: 33\r\n\r\n{\"error\":\"too many connections\"}\n";

/// A server that listens, but does not yet answer. Opened before the probe drops its privileges and
/// restricts itself; afterwards it opens nothing.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    access: Access,
    runtime: Runtime,
    times: Timing,
}

impl Server {
    /// Listens. Connections have the times of `timing`.
    ///
    /// # Errors
    /// The system refuses, for example because another program has the port.
    pub fn bind(address: SocketAddr, access: Access, timing: &Timing) -> Result<Self, Error> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
            Ok((listener.local_addr()?, listener, runtime))
        };
        let (address, listener, runtime) = bind().map_err(|error| Error::Listen { address, error })?;
        Ok(Self { listener, address, access, runtime, times: *timing })
    }

    /// Starts the thread, with the first report, what adds places to flows, and the overrides of a probe
    /// with rules. It ends with the process. The caller is the main thread of the probe: a request wakes it
    /// if it is parked.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        self,
        first: Report,
        affinity: CpuAffinity,
        enricher: Option<RecordEnricher>,
        overrides: Option<Overrides>,
    ) -> io::Result<Control> {
        let (control, client) = connect(first, self.address);
        let acceptor = self.access.tls.clone().map(TlsAcceptor::from);
        let router = api::router(client, self.access, self.address, enricher, overrides);
        let (listener, runtime, times) = (self.listener, self.runtime, self.times);
        std::thread::Builder::new().name("weir-control".into()).spawn(move || {
            affinity.apply();
            runtime.block_on(serve(listener, acceptor, router, times));
        })?;
        Ok(control)
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, times: Timing) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("the runtime has its poll descriptor");
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            if tls.is_none() {
                let _ = stream.try_write(BUSY.as_bytes());
            }
            continue;
        };
        let (tls, router) = (tls.clone(), router.clone());
        tokio::spawn(async move {
            let _place = place;
            let _ = timeout(times.http_total, serve_connection(stream, tls, router, times)).await;
        });
    }
}

async fn serve_connection(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, times: Timing) {
    match tls {
        None => serve_requests(stream, router, times).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(times.http_header, tls.accept(stream)).await {
                serve_requests(stream, router, times).await;
            }
        }
    }
}

/// An error of the connection concerns its client only.
async fn serve_requests(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, times: Timing) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(times.http_header).max_buf_size(MAX_HEADER_OCTETS);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    if timeout(times.http_keep_alive, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_one_connection_too_many_has_its_length() {
        let (head, body) = BUSY.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }
}
