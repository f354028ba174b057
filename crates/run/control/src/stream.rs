//! A connection that fails when its client reads nothing for a time.

use crate::connections::Connection;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A stream below TLS and HTTP.
pub struct LimitedStream {
    stream: TcpStream,
    connection: Arc<Connection>,
    limit: Duration,
    /// Since a write has to wait.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl LimitedStream {
    /// Writes fail if none succeeds within the limit.
    pub fn new(stream: TcpStream, connection: Arc<Connection>, limit: Duration) -> Self {
        Self { stream, connection, limit, stalled: None }
    }

    fn after_write(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if result.is_ready() {
            if self.stalled.take().is_some() {
                self.connection.set_stalled(false);
            }
            return result;
        }
        let (connection, limit) = (&self.connection, self.limit);
        let timer = self.stalled.get_or_insert_with(|| {
            connection.set_stalled(true);
            Box::pin(sleep(limit))
        });
        timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, octets);
        self.after_write(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, octets);
        self.after_write(cx, result)
    }

    /// HTTP copies answers into a buffer of each connection otherwise.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
