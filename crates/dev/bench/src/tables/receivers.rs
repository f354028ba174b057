//! Receivers that read and forget, on loopback: what a sink sends to when nothing but the sink is to be measured.
//!
//! Their threads end with the process.

use crate::error::Error;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use weir_clickhouse::row_columns;
use weir_fields::select_columns;

/// A certificate for `localhost` that its own key has signed, and this key: for the receivers of this file only.
const CERTIFICATE: &[u8] = include_bytes!("receiver.pem");
const KEY: &[u8] = include_bytes!("receiver.key");
/// Octets that are read at once.
const READ_OCTETS: usize = 256 << 10;

/// Where they listen.
pub struct Receivers {
    /// Datagrams, which no program reads.
    pub udp: SocketAddr,
    /// Connections of TCP.
    pub tcp: SocketAddr,
    /// Connections with TLS.
    pub tls: SocketAddr,
    /// A table of ClickHouse with all columns, over HTTP.
    pub http: SocketAddr,
    /// Connections of a Unix stream socket.
    pub unix: PathBuf,
    /// The certificate of the receiver with TLS.
    pub ca: PathBuf,
    _socket: UdpSocket,
}

impl Receivers {
    /// Starts all. `folder` gets the Unix socket and the certificate.
    pub fn start(folder: &Path) -> Result<Self, Error> {
        let failed = |error| Error::io("cannot receive on loopback")(error);
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
        let (unix, ca) = (folder.join("socket"), folder.join("receiver.pem"));
        std::fs::write(&ca, CERTIFICATE).map_err(failed)?;
        let listener = UnixListener::bind(&unix).map_err(failed)?;
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(read_all(stream))));
        let config = server_config().map_err(failed)?;
        let columns = columns();
        Ok(Self {
            udp: socket.local_addr().map_err(failed)?,
            tcp: serve(|stream| read_all(stream).map(drop)).map_err(failed)?,
            tls: serve(move |stream| {
                let connection = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
                read_all(StreamOwned::new(connection, stream)).map(drop)
            })
            .map_err(failed)?,
            http: serve(move |stream| answer_all(stream, &columns)).map_err(failed)?,
            unix,
            ca,
            _socket: socket,
        })
    }
}

/// Handles the connections to a port, each on a thread of its own.
fn serve(handle: impl Fn(std::net::TcpStream) -> io::Result<()> + Clone + Send + 'static) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handle = handle.clone();
            thread::spawn(move || handle(stream));
        }
    });
    Ok(address)
}

fn read_all(mut stream: impl Read) -> io::Result<()> {
    let mut octets = vec![0; READ_OCTETS];
    while stream.read(&mut octets)? > 0 {}
    Ok(())
}

fn server_config() -> io::Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(KEY).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?.with_no_client_auth().with_single_cert(vec![certificate], key);
    config.map(Arc::new).map_err(io::Error::other)
}

/// What `system.columns` says of a table with all columns: lines of name, type and kind of default.
fn columns() -> String {
    let columns = row_columns(&select_columns("all").unwrap_or_default(), true);
    columns.iter().map(|column| format!("{}\t{}\t\n", column.name, column.type_name)).collect()
}

/// Answers requests of ClickHouse's HTTP interface: a table is there, and what is inserted is forgotten.
fn answer_all(stream: impl Read + Write, columns: &str) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(READ_OCTETS, stream);
    loop {
        let (mut request, mut line, mut length) = (String::new(), String::new(), 0);
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        while reader.read_line(&mut line)? > 0 && line != "\r\n" {
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            line.clear();
        }
        io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
        let body = match () {
            () if request.contains("system.tables") => {
                "MergeTree SETTINGS non_replicated_deduplication_window = 1000\n"
            }
            () if request.contains("system.columns") => columns,
            () => "",
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        reader.get_mut().write_all(format!("{head}{body}").as_bytes())?;
        reader.get_mut().flush()?;
    }
}
