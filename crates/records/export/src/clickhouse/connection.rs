//! A connection to an HTTP server, with TLS or without: hyper over a socket that does not block.
//!
//! Requests are driven by the thread that makes them, which waits in poll(2) for the socket. So a request ends when
//! the sink has to, and needs no system call that the sandbox forbids, as those of a runtime would be.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::ReadBufCursor;
use hyper::{HeaderMap, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::{SockRef, TcpKeepalive};
use std::error::Error as _;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Longest sleep between two looks at the stop signal.
const SHORT_WAIT: Duration = Duration::from_millis(50);
/// Whole seconds, as the system has them.
const MIN_KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Octets of an answer at most: a server has a few lines to say.
const MAX_ANSWER: usize = 1 << 20;

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub host: String,
    pub port: u16,
    /// With TLS: how, and the name in the certificate.
    pub tls: Option<(Arc<ClientConfig>, rustls::pki_types::ServerName<'static>)>,
}

/// What a server answers.
pub(crate) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Times of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimes {
    /// For an address to answer.
    pub connect: Duration,
    /// From the last octet that is sent to the end of the answer.
    pub dead: Duration,
}

/// The state of a socket, which the driver looks at.
#[derive(Default)]
struct SocketState {
    /// A write waits until the socket is writable.
    waits_to_write: AtomicBool,
    /// Octets that were sent so far.
    sent: AtomicU64,
    /// What is wrong with TLS: hyper may report the end of the connection only.
    failure: Mutex<Option<String>>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

struct Io {
    stream: Stream,
    state: Arc<SocketState>,
}

/// A connection that is open.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: http1::Connection<Io, Full<Bytes>>,
    socket: TcpStream,
    state: Arc<SocketState>,
    woken: Arc<Woken>,
    has_ended: bool,
}

/// Remembers that a future wants to be asked again.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Connection {
    /// Connects to the first address that answers. May wait for a name server.
    pub fn open(endpoint: &Endpoint, times: ConnectionTimes, stop: &AtomicBool) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (endpoint.host.as_str(), endpoint.port).to_socket_addrs()? {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match TcpStream::connect_timeout(&address, times.connect) {
                Ok(socket) => return Self::over(socket, endpoint, times),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn over(socket: TcpStream, endpoint: &Endpoint, times: ConnectionTimes) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(times.dead.max(MIN_KEEP_ALIVE)))?;
        let other = socket.try_clone()?;
        let stream = match &endpoint.tls {
            None => Stream::Plain(socket),
            Some((config, name)) => {
                let session = ClientConnection::new(config.clone(), name.clone()).map_err(invalid)?;
                Stream::Tls(Box::new(StreamOwned::new(session, socket)))
            }
        };
        let (state, woken) = (Arc::<SocketState>::default(), Arc::<Woken>::default());
        let io = Io { stream, state: state.clone() };
        let handshake = http1::handshake::<_, Full<Bytes>>(io);
        // It waits for nothing: TLS begins with the first request.
        let (sender, driver) = wait_for_nothing(handshake).map_err(plain)?;
        Ok(Self { sender, driver, socket: other, state, woken, has_ended: false })
    }

    /// Sends a request, and reads the whole answer. `dead`: from the last octet that is sent to the end of the answer.
    pub fn request(&mut self, request: Request<Full<Bytes>>, dead: Duration, stop: &AtomicBool) -> io::Result<Answer> {
        let answer = self.sender.send_request(request);
        let result = self.drive(dead, stop, async move {
            let (head, mut body) = answer.await.map_err(plain)?.into_parts();
            let mut octets = Vec::new();
            while let Some(frame) = body.frame().await {
                if let Some(data) = frame.map_err(plain)?.data_ref() {
                    octets.extend(data);
                }
                if octets.len() > MAX_ANSWER {
                    return Err(invalid("its answer has more than 1 MiB; this is no ClickHouse server"));
                }
            }
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: octets })
        });
        result.map_err(|error| {
            let failure = self.state.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
            let failure = failure.filter(|_| is_end(error.kind()));
            failure.map_or(error, |message| explained(io::ErrorKind::InvalidData, message))
        })
    }

    /// Whether another request can follow: the server has not closed the connection, and reads no more of the last
    /// request.
    pub fn is_open(&mut self) -> bool {
        let waker = Waker::from(self.woken.clone());
        let mut context = Context::from_waker(&waker);
        self.woken.0.store(true, Ordering::Relaxed);
        while !self.has_ended && self.woken.0.swap(false, Ordering::Relaxed) {
            self.has_ended = Pin::new(&mut self.driver).poll(&mut context).is_ready();
        }
        !self.has_ended && self.sender.is_ready()
    }

    /// Waits for a future that this connection serves.
    fn drive<T>(
        &mut self,
        dead: Duration,
        stop: &AtomicBool,
        future: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let waker = Waker::from(self.woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let (mut sent, mut since) = (self.state.sent.load(Ordering::Relaxed), Instant::now());
        loop {
            self.woken.0.store(false, Ordering::Relaxed);
            let ended = match self.has_ended {
                false => Pin::new(&mut self.driver).poll(&mut context),
                true => Poll::Pending,
            };
            self.has_ended |= ended.is_ready();
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                return result;
            }
            match ended {
                Poll::Ready(Err(error)) => return Err(plain(error)),
                Poll::Ready(Ok(())) => return Err(closed()),
                Poll::Pending => {}
            }
            if self.woken.0.load(Ordering::Relaxed) {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let now = self.state.sent.load(Ordering::Relaxed);
            if now != sent {
                (sent, since) = (now, Instant::now());
            }
            if since.elapsed() >= dead {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer in time"));
            }
            self.wait();
        }
    }

    /// Waits until the socket is ready, for a short time.
    fn wait(&self) {
        let mut events = PollFlags::IN;
        if self.state.waits_to_write.load(Ordering::Relaxed) {
            events |= PollFlags::OUT;
        }
        let timeout = Timespec::try_from(SHORT_WAIT).ok();
        let _ = poll(&mut [PollFd::new(&self.socket, events)], timeout.as_ref());
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// The result of a future that is ready at once.
fn wait_for_nothing<T>(future: impl Future<Output = Result<T, hyper::Error>>) -> Result<T, hyper::Error> {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
        std::thread::yield_now();
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the server closed the connection")
}

/// Whether the server has ended the connection.
fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&kind)
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// The error behind one of hyper.
fn plain(error: hyper::Error) -> io::Error {
    if error.is_parse() {
        return invalid("it does not answer in HTTP; if it expects TLS, write clickhouse+https://");
    }
    if let Some(cause) = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
        if cause.kind() == io::ErrorKind::UnexpectedEof {
            return io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection within its answer");
        }
        return explained(cause.kind(), cause.to_string());
    }
    if error.is_body_write_aborted() || error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return closed();
    }
    io::Error::other(error)
}

/// An error of the socket or of TLS, with what to do.
fn explained(kind: io::ErrorKind, message: String) -> io::Error {
    let message = match kind {
        io::ErrorKind::InvalidData if message.contains("InvalidContentType") => {
            "it does not answer in TLS; if it expects none, write clickhouse+http://".into()
        }
        io::ErrorKind::InvalidData if message.contains("UnknownIssuer") => {
            format!("{message}; ca=FILE names the certificate of who signed that of the server")
        }
        _ => message,
    };
    io::Error::new(kind, message)
}

impl Stream {
    /// Whether a write that cannot go on waits until the socket is writable, not readable.
    fn waits_to_write(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(tls) => tls.conn.wants_write(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(octets),
            Self::Tls(tls) => tls.read(octets),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(octets),
            Self::Tls(tls) => tls.write(octets),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

impl Io {
    /// The result of a call that does not wait.
    fn ready<T>(&mut self, call: impl Fn(&mut Stream) -> io::Result<T>) -> Poll<io::Result<T>> {
        loop {
            match call(&mut self.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                result => {
                    result.as_ref().err().into_iter().for_each(|error| self.note_failure(error));
                    return Poll::Ready(result);
                }
            }
        }
    }

    /// Remembers the first error of TLS. A server that expects none may end the connection without an answer.
    fn note_failure(&self, error: &io::Error) {
        let is_handshaking = matches!(&self.stream, Stream::Tls(tls) if tls.conn.is_handshaking());
        let message = match error.kind() {
            io::ErrorKind::InvalidData => error.to_string(),
            kind if is_end(kind) && is_handshaking => {
                "it ends the connection before TLS begins; if it expects none, write clickhouse+http://".into()
            }
            _ => return,
        };
        self.state.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
    }

    fn note_write(&self, is_pending: bool) {
        let waits = match &self.stream {
            Stream::Plain(_) => is_pending,
            Stream::Tls(_) => self.stream.waits_to_write(),
        };
        self.state.waits_to_write.store(waits, Ordering::Relaxed);
    }
}

impl hyper::rt::Read for Io {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut octets = [0; 8192];
        let most = buffer.remaining().min(octets.len());
        let read = loop {
            match self.stream.read(&mut octets[..most]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match read {
            Ok(length) => {
                buffer.put_slice(&octets[..length]);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            // A server that closes TLS without a farewell has answered, or not: HTTP knows.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.note_failure(&error);
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.note_failure(&error);
                Poll::Ready(Err(error))
            }
        }
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.ready(|stream| stream.write(octets));
        if let Poll::Ready(Ok(length)) = written {
            self.state.sent.fetch_add(length as u64, Ordering::Relaxed);
        }
        self.note_write(written.is_pending());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.ready(Write::flush);
        self.note_write(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Stream::Tls(tls) = &mut self.stream {
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
        Poll::Ready(Ok(()))
    }
}
