//! Accepts connections and serves them, on one thread.
//!
//! Every connection has a place (`connections.rs`) and a time, after which it is closed whatever its
//! client does. A client that sends its request or reads its answer slowly takes its own time only.

use crate::about::ViewOf;
use crate::access::Access;
use crate::api::{self, ProbeParts, Served};
use crate::connections::{Connection, Connections};
use crate::error::Error;
use crate::history::History;
use crate::packets::Packets;
use crate::report::{Control, Report, connect};
use crate::stored::{AskStore, Stores};
use crate::stream::LimitedStream;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use weir_ledger::Timing;
use weir_probe::{CpuAffinity, beat};

/// Octets of the headers of a request, and of the buffer of a connection.
pub const MAX_HEADER_OCTETS: usize = 16 << 10;
/// What the kernel takes of an answer before the client reads; it doubles this for its own structures.
const SEND_BUFFER_OCTETS: usize = 64 << 10;
/// Time between two beats of the thread, for the watchdog.
const BEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Pause when the system refuses to accept a connection, for example because no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The answer to a connection if all others are being answered.
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
    pub fn bind(address: SocketAddr, mut access: Access, timing: &Timing) -> Result<Self, Error> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            // Connections inherit it.
            set_socket_send_buffer_size(&listener, SEND_BUFFER_OCTETS)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
            Ok((listener.local_addr()?, listener, runtime))
        };
        let (address, listener, runtime) = bind().map_err(|error| Error::Listen { address, error })?;
        access.listens_on(address.port());
        Ok(Self { listener, address, access, runtime, times: *timing })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the thread, with the first report, what it uses of the probe beside its reports, and what answers questions
    /// to stores (on threads of their own). It ends with the process. The caller is the main thread of the probe: a request
    /// wakes it if it is parked.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        self,
        first: Report,
        affinity: CpuAffinity,
        probe: ProbeParts,
        ask_store: AskStore,
    ) -> io::Result<Control> {
        self.serve(first, affinity, Served::Probe(probe), ask_store)
    }

    /// The same without a probe.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start_view(mut self, affinity: CpuAffinity, view: ViewOf, ask_store: AskStore) -> io::Result<()> {
        self.access.serves_view();
        self.serve(Report::default(), affinity, Served::View(view), ask_store).map(drop)
    }

    fn serve(self, first: Report, affinity: CpuAffinity, of: Served, ask_store: AskStore) -> io::Result<Control> {
        let (control, client) = connect(first, self.address);
        let heartbeat = control.heartbeat();
        let acceptor = self.access.tls.clone().map(TlsAcceptor::from);
        let stores = Stores::new(ask_store, affinity.clone());
        let packets = Packets::new(of.packets(), affinity.clone());
        let history = Arc::new(History::default());
        let recording = matches!(of, Served::Probe(_)).then(|| history.clone().record(client.clone()));
        let router = api::router(client, self.access, self.address, of, stores, packets, history);
        let (listener, runtime, times) = (self.listener, self.runtime, self.times);
        std::thread::Builder::new().name("weir-control".into()).spawn(move || {
            affinity.apply();
            runtime.spawn(async {
                loop {
                    beat();
                    sleep(BEAT_INTERVAL).await;
                }
            });
            recording.map(|recording| runtime.spawn(recording));
            heartbeat.adopt(|| runtime.block_on(serve(listener, acceptor, router, times)));
        })?;
        Ok(control)
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, times: Timing) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("the runtime has its poll descriptor");
    let connections = Arc::new(Connections::new(times.http_wait));
    loop {
        let Ok((stream, client)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Fails if the client has gone.
        let Ok(server) = stream.local_addr() else { continue };
        let Some(connection) = connections.open(client, server) else {
            if tls.is_none() {
                let _ = stream.try_write(BUSY.as_bytes());
            }
            continue;
        };
        let task = tokio::spawn(timeout(
            times.http_total,
            serve_connection(stream, connection.clone(), tls.clone(), router.clone(), times),
        ));
        connection.set_task(task.abort_handle());
        // One that was closed for it ends, and the new one reads, before the next one comes.
        yield_now().await;
    }
}

async fn serve_connection(
    stream: TcpStream,
    connection: Arc<Connection>,
    tls: Option<TlsAcceptor>,
    router: Router,
    times: Timing,
) {
    let stream = LimitedStream::new(stream, connection.clone(), times.http_stall);
    match tls {
        None => serve_requests(stream, connection, router, times).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(times.http_header, tls.accept(stream)).await {
                serve_requests(stream, connection, router, times).await;
            }
        }
    }
}

/// An error of the connection concerns its client only.
async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: Arc<Connection>,
    router: Router,
    times: Timing,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(times.http_header).max_buf_size(MAX_HEADER_OCTETS);
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        service.call(request)
    });
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    if timeout(times.http_keep_alive, served.as_mut()).await.is_err() {
        served.as_mut().graceful_shutdown();
        let _ = served.await;
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
