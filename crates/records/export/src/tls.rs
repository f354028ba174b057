//! TLS over a connection to a collector (rustls): its files, the handshake, and what the system has accepted.
//!
//! ```text
//! messages -> TLS records of up to 16 KiB -> socket       open -> handshake -> session -> close_notify
//! ```
//! A message is accepted when the system has accepted the TLS record with its last octet.

use crate::socket::{SocketWriter, Written, is_later};
use rustls::client::ResolvesClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore, SignatureScheme};
use socket2::Socket;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Octets of messages in a TLS record (RFC 8446 section 5.1).
const RECORD_BYTES: usize = 1 << 14;
/// TLS records that wait for the system at most.
const MAX_SEALED: usize = 4;
/// A collector that has asked for a client certificate refuses it after the handshake (RFC 8446 section 4.4.2.4), or
/// sends something else. One that sends nothing for this time has accepted it.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// What the specification says about TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSettings {
    /// Certificates that sign that of the collector; without them, those of the system.
    pub ca: Option<PathBuf>,
    /// The name in the certificate of the collector, instead of that of the host.
    pub name: Option<String>,
    /// Client certificate, then those that sign it.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// What each connection to a collector needs: the content of the files.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    client: Arc<ClientCertificate>,
    settings: TlsSettings,
}

/// The certificate of this host, and whether the collector has asked for one.
#[derive(Debug)]
struct ClientCertificate {
    certified: Option<Arc<CertifiedKey>>,
    is_asked_for: AtomicBool,
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.is_asked_for.store(true, Ordering::Relaxed);
        self.certified.clone()
    }

    fn has_certs(&self) -> bool {
        self.certified.is_some()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used, or there are no certificates of authorities.
    pub fn load(host: &str, settings: &TlsSettings) -> io::Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let client = Arc::new(ClientCertificate {
            certified: client_certificate(settings, &provider)?,
            is_asked_for: AtomicBool::new(false),
        });
        let roots = roots(settings.ca.as_deref())?;
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_root_certificates(roots);
        let mut config = config.with_client_cert_resolver(client.clone());
        // A resumed session would not tell whether the certificates are still valid.
        config.resumption = rustls::client::Resumption::disabled();
        let name = settings.name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        Ok(Self { config: Arc::new(config), name, client, settings: settings.clone() })
    }

    /// Begins a session, of which nothing is sent yet.
    pub fn session(&self) -> io::Result<TlsSession> {
        let mut connection = ClientConnection::new(self.config.clone(), self.name.clone()).map_err(io::Error::other)?;
        // What waits is limited by MAX_SEALED. The library's own limit is less, and would end the connection.
        connection.set_buffer_limit(None);
        self.client.is_asked_for.store(false, Ordering::Relaxed);
        Ok(TlsSession {
            tls: self.clone(),
            connection,
            sent: 0,
            sealed: VecDeque::new(),
            answer: Answer::None,
            is_ended: false,
        })
    }

    /// What is wrong and what to do, in a sentence.
    fn explain(&self, error: &rustls::Error) -> io::Error {
        let name = self.name.to_str();
        let asked_without = self.client.is_asked_for.load(Ordering::Relaxed) && self.client.certified.is_none();
        let text = match error {
            rustls::Error::InvalidCertificate(error) => self.explain_certificate(error),
            rustls::Error::InvalidMessage(_) => {
                "the collector does not speak TLS on this port; name its port for TLS, or use the sink without +tls"
                    .into()
            }
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => NEEDS_CERTIFICATE.into(),
            rustls::Error::AlertReceived(AlertDescription::HandshakeFailure | AlertDescription::BadCertificate)
                if asked_without =>
            {
                NEEDS_CERTIFICATE.into()
            }
            rustls::Error::AlertReceived(
                alert @ (AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::DecryptError
                | AlertDescription::AccessDenied),
            ) => format!(
                "the collector refuses the client certificate of cert= ({alert:?}); use one that its CA signed and that \
                 has not expired"
            ),
            rustls::Error::AlertReceived(AlertDescription::UnrecognisedName) => {
                format!("the collector does not know the name {name}; set name= to a name that it serves")
            }
            rustls::Error::AlertReceived(AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion)
            | rustls::Error::PeerIncompatible(_) => {
                "the collector has no version or cipher of TLS in common with this program; permit TLS 1.2 or 1.3 there"
                    .into()
            }
            error => format!("TLS failed: {error}; see the log of the collector"),
        };
        io::Error::other(text)
    }

    fn explain_certificate(&self, error: &CertificateError) -> String {
        let name = self.name.to_str();
        match error {
            // A CA of the same name has not signed it.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => match &self.settings.ca {
                Some(ca) => format!(
                    "no CA of {} signed the certificate of the collector; set ca= to the file of its CA",
                    ca.display()
                ),
                None => {
                    "no CA that this system trusts signed the certificate of the collector; add ca=FILE with its CA"
                        .into()
                }
            },
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
                "the certificate of the collector is not for {name}; set name= to a name in it, or give the collector \
                 a certificate for this name"
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate of the collector has expired; renew it there, or correct the clock of this host".into()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate of the collector is not valid yet; correct the clock of this host or of its CA".into()
            }
            CertificateError::Other(error) if error.to_string().contains("CaUsedAsEndEntity") => {
                "the certificate of the collector is one of a CA, not of a server; give it one that is signed by this \
                 CA, or make one that is signed by itself with basicConstraints=CA:FALSE (openssl req -addext)"
                    .into()
            }
            error => format!(
                "the certificate of the collector cannot be verified ({error}); give it one that is signed by a CA, for \
                 servers"
            ),
        }
    }
}

const NEEDS_CERTIFICATE: &str = "the collector demands a client certificate; add cert=FILE and key=FILE";

/// What came after the handshake.
enum Answer {
    None,
    /// Nothing yet, which is waited for until then.
    Expected(Instant),
    /// Something, or nothing is expected.
    Done,
}

/// TLS of one connection.
pub(crate) struct TlsSession {
    tls: Tls,
    connection: ClientConnection,
    /// Octets of TLS that the system has accepted.
    sent: u64,
    /// TLS records that it has not accepted as a whole: which octet of TLS follows them, and octets of messages.
    sealed: VecDeque<(u64, usize)>,
    answer: Answer,
    /// The collector has ended the session (close_notify).
    is_ended: bool,
}

impl TlsSession {
    /// Continues the handshake as far as the socket permits. Returns whether it has ended.
    pub fn shake_hands(&mut self, socket: &Socket) -> io::Result<bool> {
        loop {
            self.send(socket)?;
            if let Answer::Expected(until) = self.answer
                && Instant::now() >= until
            {
                self.answer = Answer::Done;
            }
            if matches!(self.answer, Answer::Done) {
                return Ok(true);
            }
            if self.receive(socket)?.is_none() {
                return Ok(matches!(self.answer, Answer::Done));
            }
            let is_asked_for = self.tls.client.is_asked_for.load(Ordering::Relaxed);
            self.answer = match self.answer {
                _ if self.connection.is_handshaking() => Answer::None,
                Answer::None if is_asked_for && self.is_tls13() => Answer::Expected(Instant::now() + ANSWER_WAIT),
                _ => Answer::Done,
            };
        }
    }

    fn is_tls13(&self) -> bool {
        self.connection.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3)
    }

    pub fn is_handshaking(&self) -> bool {
        !matches!(self.answer, Answer::Done)
    }

    /// Whether it has octets for the socket.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends what is sealed, then seals and sends more.
    pub fn write(&mut self, socket: &Socket, slices: &[IoSlice<'_>]) -> io::Result<Written> {
        let mut written = Written { taken: 0, accepted: self.send(socket)? };
        if !self.connection.wants_write() {
            written.taken = self.seal(slices)?;
            written.accepted += self.send(socket)?;
        }
        Ok(written)
    }

    /// Seals messages in TLS records. Returns their octets.
    fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let (mut octets, mut taken) = (Vec::with_capacity(RECORD_BYTES), 0);
        let mut rest = slices.iter().map(|slice| &slice[..]);
        let mut slice: &[u8] = &[];
        while self.sealed.len() < MAX_SEALED {
            octets.clear();
            while octets.len() < RECORD_BYTES {
                if slice.is_empty() {
                    let Some(next) = rest.next() else { break };
                    slice = next;
                }
                let (head, tail) = slice.split_at(slice.len().min(RECORD_BYTES - octets.len()));
                octets.extend(head);
                slice = tail;
            }
            if octets.is_empty() {
                break;
            }
            self.connection.writer().write_all(&octets)?;
            let state = self.connection.process_new_packets().map_err(|error| self.tls.explain(&error))?;
            self.sealed.push_back((self.sent + state.tls_bytes_to_write() as u64, octets.len()));
            taken += octets.len();
        }
        Ok(taken)
    }

    /// Sends octets of TLS as far as the system accepts them. Returns the octets of messages that it has accepted now.
    pub fn send(&mut self, socket: &Socket) -> io::Result<usize> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut SocketWriter(socket)) {
                Ok(octets) => self.sent += octets as u64,
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        let mut accepted = 0;
        while let Some(&(end, octets)) = self.sealed.front()
            && end <= self.sent
        {
            accepted += octets;
            self.sealed.pop_front();
        }
        Ok(accepted)
    }

    /// Reads what the collector has sent, and drops it. `None`: nothing; `false`: it has closed the session.
    pub fn receive(&mut self, socket: &Socket) -> io::Result<Option<bool>> {
        let mut socket_reader = socket;
        match self.connection.read_tls(&mut socket_reader) {
            Ok(0) => return Err(self.explain_end()),
            Err(error) if is_later(&error) => return Ok(None),
            Err(error) if self.is_handshaking() && error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(self.explain_end());
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let state = self.connection.process_new_packets().map_err(|error| {
            // The collector gets an alert that says the same.
            let _ = self.connection.write_tls(&mut SocketWriter(socket));
            self.tls.explain(&error)
        })?;
        let mut octets = [0; 1024];
        let mut left = state.plaintext_bytes_to_read();
        while left > 0 {
            let read = self.connection.reader().read(&mut octets)?;
            left = if read == 0 { 0 } else { left.saturating_sub(read) };
        }
        self.is_ended = state.peer_has_closed();
        Ok(Some(!self.is_ended))
    }

    /// Whether the collector has ended the session.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The connection has ended without an end of the session.
    fn explain_end(&self) -> io::Error {
        let is_asked_for = self.tls.client.is_asked_for.load(Ordering::Relaxed);
        let text = match self.answer {
            Answer::Done => {
                "the collector closed the connection without an end of the TLS session (close_notify), or another \
                 program did"
            }
            _ if is_asked_for && self.tls.client.certified.is_none() => NEEDS_CERTIFICATE,
            _ if is_asked_for => "the collector refuses the client certificate of cert=; use one that its CA signed",
            _ => {
                "the collector closed the connection during the TLS handshake; if it does not speak TLS on this port, \
                 name its port for TLS"
            }
        };
        io::Error::other(text)
    }

    /// Ends the session: close_notify is the last that is sent.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

/// Whether a certificate can have this name.
pub(crate) fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// The certificates of a file, or those of the system.
pub(crate) fn roots(ca: Option<&Path>) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(io::Error::other(
                "this system has no certificates of authorities; install ca-certificates, or add ca=FILE with the CA \
                 of the collector",
            ));
        }
        return Ok(roots);
    };
    for certificate in certificates("ca", path)? {
        let unusable = |error| io::Error::other(format!("ca={}: a certificate is invalid: {error}", path.display()));
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

fn client_certificate(settings: &TlsSettings, provider: &CryptoProvider) -> io::Result<Option<Arc<CertifiedKey>>> {
    let (Some(path), Some(key_path)) = (&settings.certificate, &settings.key) else { return Ok(None) };
    let chain = certificates("cert", path)?;
    let octets = read("key", key_path)?;
    let shown = key_path.display();
    let failed = |text: String| io::Error::other(format!("key={shown}: {text}"));
    if octets.windows(9).any(|text| text == b"ENCRYPTED") {
        return Err(failed(format!(
            "this key is encrypted; decrypt it with openssl pkey -in {shown} -out FILE, and name that file"
        )));
    }
    let key = PrivateKeyDer::from_pem_slice(&octets).map_err(|error| match error {
        pem::Error::NoItemsFound => failed("there is no private key in this file; name a file in PEM format".into()),
        error => failed(format!("this is no valid PEM file: {error:?}")),
    })?;
    let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            failed(format!("this key does not belong to the certificate of cert={}", path.display()))
        }
        error => failed(format!("this key cannot be used: {error}")),
    })?;
    Ok(Some(Arc::new(certified)))
}

/// The certificates of a PEM file: one at least.
fn certificates(setting: &str, path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let octets = read(setting, path)?;
    let failed = |text: String| io::Error::other(format!("{setting}={}: {text}", path.display()));
    let certificates = CertificateDer::pem_slice_iter(&octets).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| failed(format!("this is no valid PEM file: {error:?}")))?;
    if certificates.is_empty() {
        return Err(failed("there is no certificate in this file; name a file in PEM format".into()));
    }
    Ok(certificates)
}

fn read(setting: &str, path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| io::Error::other(format!("{setting}={}: {error}", path.display())))
}
