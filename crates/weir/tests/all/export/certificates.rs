//! Certificates for tests, made with `openssl`, and collectors that use them.

use super::tcp_export::Collector;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// A certificate authority: `ca.pem` and `ca.key`.
pub struct Authority(TempDir);

impl Authority {
    pub fn new() -> Self {
        let authority = Self(tempfile::tempdir().unwrap());
        authority.openssl(&["req", "-x509", "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem"]);
        authority
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Makes `NAME.pem` and `NAME.key`, for names such as `DNS:collector.example`.
    pub fn sign(&self, name: &str, names: &str) {
        let [certificate, key, names] =
            [format!("{name}.pem"), format!("{name}.key"), format!("subjectAltName={names}")];
        let signed = ["req", "-x509", "-days", "2", "-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=weir"];
        let extensions = ["-addext", &names, "-addext", "basicConstraints=critical,CA:FALSE"];
        self.openssl(&[&signed[..], &extensions, &["-keyout", &key, "-out", &certificate]].concat());
    }

    /// The same, of the year 2020.
    pub fn sign_expired(&self, name: &str, names: &str) {
        let [certificate, key, request] = [format!("{name}.pem"), format!("{name}.key"), format!("{name}.csr")];
        let settings = format!(
            "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n\
             [p]\ncommonName=supplied\n[e]\nsubjectAltName={names}\n"
        );
        fs::write(self.path("settings"), settings).unwrap();
        fs::write(self.path("index"), "").unwrap();
        self.openssl(&["req", "-subj", "/CN=weir", "-keyout", &key, "-out", &request]);
        let period = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"];
        let files = ["-cert", "ca.pem", "-keyfile", "ca.key", "-in", &request, "-out", &certificate, "-notext"];
        let signed = ["ca", "-batch", "-config", "settings", "-extensions", "e"];
        self.openssl(&[&signed[..], &period, &files].concat());
    }

    pub fn openssl(&self, arguments: &[&str]) {
        let key: &[&str] = if arguments[0] == "req" { &NEW_KEY } else { &[] };
        let out = Command::new("openssl").args(arguments).args(key).current_dir(self.0.path()).output().unwrap();
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// A collector's TLS with the certificate `NAME.pem`. With `clients`, it demands certificates of this authority.
    pub fn server(&self, name: &str, clients: Option<&Self>) -> Arc<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let config = match clients {
            None => config.unwrap().with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(authority.path("ca.pem")).unwrap()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                config.unwrap().with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let [certificate, key] = ["pem", "key"].map(|ending| PathBuf::from(self.path(&format!("{name}.{ending}"))));
        let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        Arc::new(config.with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap())
    }
}

/// A session of TLS. Its end is that of the connection.
struct Session {
    stream: StreamOwned<ServerConnection, TcpStream>,
    /// Number of sessions that ended with close_notify.
    closed: Arc<AtomicUsize>,
}

impl Read for Session {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(octets) {
            Ok(0) => {
                self.closed.fetch_add(1, Ordering::Relaxed);
                Ok(0)
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Ok(0),
            read => read,
        }
    }
}

/// Collects over TLS. Returns the address, and the number of sessions that ended with close_notify.
pub fn collect(address: &str, config: Arc<ServerConfig>) -> (Collector, String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, closed) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let counted = closed.clone();
    let accept = move || {
        let (stream, _) = listener.accept().ok()?;
        stream.set_nonblocking(true).unwrap();
        let stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        Some(Box::new(Session { stream, closed: counted.clone() }) as Box<dyn Read + Send>)
    };
    (Collector::start(Box::new(accept)), address, closed)
}

/// A session whose handshake is made, and of which nothing more is read.
struct SilentSession(StreamOwned<ServerConnection, TcpStream>);

impl Read for SilentSession {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        if self.0.conn.is_handshaking() || self.0.conn.wants_write() {
            return self.0.read(octets);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// A collector over TLS that reads no records, with a small buffer. Returns its address.
pub fn silent(config: Arc<ServerConfig>) -> (Collector, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accept = move || {
        let (stream, _) = listener.accept().ok()?;
        stream.set_nonblocking(true).unwrap();
        let stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        Some(Box::new(SilentSession(stream)) as Box<dyn Read + Send>)
    };
    (Collector::start(Box::new(accept)), address)
}
