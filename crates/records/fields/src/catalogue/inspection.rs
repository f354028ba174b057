//! Fields of packet inspection: the application of a flow, and what its payload says.

use super::reading::{optional, text};
use crate::column::Anonymisation::{Keep, LeaveOut, Name, Words as KnownWords};
use crate::column::Profile::{Basic, Store};
use crate::column::Requirement::{Inspection, Ndpi, PersonalFields, Transactions};
use crate::column::{Known, Origin, Properties};
use crate::element::DataType::{DateTimeMilliseconds, OctetArray, Unsigned8, Unsigned16, Unsigned32, Unsigned64};
use crate::element::{DataType, Element, Semantics, Units, ntop_text, quantity, text_element};
use crate::entry::{DirectionView, fields};
use crate::restore::set;
use crate::value::FieldValue;
use crate::words::Words;
use weir_dpi::{Application, Confidence, Fact, Findings, MessageCounts, Notes};

const COMMON: Properties =
    Properties { known: Known::Later, needs: Some(Inspection), ..Properties::of(Origin::Inspection) };

/// Protocols of ALPN that anonymised records keep (IANA, *TLS ALPN Protocol IDs*).
#[rustfmt::skip]
const ALPN: &[&str] = &[
    "http/0.9", "http/1.0", "http/1.1", "h2", "h2c", "h3", "spdy/1", "spdy/2", "spdy/3", "spdy/3.1", "dot", "doq",
    "imap", "pop3", "managesieve", "smb", "mqtt", "ftp", "irc", "ntske/1", "sip/2", "coap", "acme-tls/1", "webrtc",
    "c-webrtc", "stun.turn", "stun.nat-discovery", "xmpp-client", "xmpp-server", "postgresql", "tds/8.0",
];

/// Methods of HTTP that anonymised records keep (IANA, *HTTP Method Registry*: the common ones).
#[rustfmt::skip]
const METHODS: &[&str] = &[
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "PROPFIND", "PROPPATCH", "MKCOL",
    "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "PRI",
];

#[rustfmt::skip]
fields! {
    COMMON;
    flow "application", Word, "", "Application protocol that inspection of the payload recognised (weir help applications). In IPFIX and NetFlow v9, applicationId is the octet 6 (user-defined, RFC 6759) and the number of the application in 3 octets.",
        [Element::common(95, "applicationId", OctetArray).only_basic(), Element::iana(96, "applicationName", DataType::String).only_listed()], |r| optional(application(r), |(application, _)| FieldValue::Code(application as u8, application.name())) => |r, v| r.set_application(v), profiles: &[Basic, Store], alias: Some("app"), words: Some(Words::Application);
    flow "application_by", Word, "", "How the application is known: message, pattern, announced or port, from the most to the least certain; 1 to 4 in IPFIX.",
        [Element::weir(66, "applicationConfidence", Unsigned8, Semantics::Identifier, Units::None).only_listed()], |r| optional(application(r), |(_, by)| FieldValue::Code(by as u8, by.name())) => |r, v| r.set_confidence(v), words: Some(Words::ApplicationBy), profiles: &[Store], restored_from: &["application"];
    flow "application_notes", Words, "", "Limits of inspection that were met, separated by spaces: gap (octets are missing), conflict (a retransmission with other octets; the first ones were used), cut (a fact did not fit), limit (of packets, octets or memory), unfingerprinted (weir help overload); bits 1 to 16 in IPFIX.",
        [Element::weir(67, "applicationNotes", Unsigned8, Semantics::Flags, Units::None).only_listed()], notes => |r, v| r.set_notes(v), words: Some(Words::ApplicationNotes);
    flow "sni", HostName, "", "Server name that the client asked for in TLS, DTLS or QUIC; with ECH that of the outer ClientHello.",
        [ntop_text(188, "TLS_SERVER_NAME")], |r| fact_text(r, has_client_hello, Fact::ServerName) => |r, v| r.set_fact(Fact::ServerName, v), profiles: &[Store], fact: Some(Fact::ServerName), anonymisation: Some(Name);
    flow "alpn_offered", Text, "", "Application protocols that the client offered (ALPN), separated by commas.",
        [text_element(68, "tlsAlpnOffered")], |r| fact_text(r, has_client_hello, Fact::AlpnOffered) => |r, v| r.set_fact(Fact::AlpnOffered, v), is_list: true, fact: Some(Fact::AlpnOffered), anonymisation: Some(KnownWords(ALPN));
    flow "alpn", Text, "", "Application protocol that the server selected (ALPN). TLS 1.3 encrypts it.",
        [text_element(69, "tlsAlpnSelected")], |r| fact_text(r, has_client_hello, Fact::AlpnSelected) => |r, v| r.set_fact(Fact::AlpnSelected, v), profiles: &[Store], fact: Some(Fact::AlpnSelected), anonymisation: Some(KnownWords(ALPN));
    flow "tls_version", CaselessText, "", "Version of TLS, SSL or DTLS: tls1.3, tls1.2, tls1.1, tls1.0, ssl3.0, dtls1.2, or else the number as in the message.",
        [text_element(70, "tlsVersion")], tls_version => |r, v| r.set_number_of(Fact::TlsVersion, v, tls_version_number), profiles: &[Store], fact: Some(Fact::TlsVersion), anonymisation: Some(Keep);
    flow "tls_cipher", Integer, "", "Number of the cipher suite that the server selected (IANA TLS Cipher Suites).",
        [Element::weir(71, "tlsCipherSuite", Unsigned16, Semantics::Identifier, Units::None).only_listed()], |r| fact_number(r, Fact::TlsCipher) => |r, v| r.set_fact_number(Fact::TlsCipher, v), fact: Some(Fact::TlsCipher);
    flow "tls_ech", Integer, "", "1: the ClientHello has the extension encrypted_client_hello, which clients also send without a use for it.",
        [Element::weir(72, "tlsEncryptedClientHello", Unsigned8, Semantics::Default, Units::None).only_listed()], |r| fact_number(r, Fact::TlsEch) => |r, v| r.set_fact_number(Fact::TlsEch, v), fact: Some(Fact::TlsEch);
    flow "tls_alert", CaselessText, "", "Alert that the server sent before its ServerHello, or instead of it, to refuse the ClientHello: level and description, as fatal handshake_failure (IANA TLS Alerts; a number if it has no name).",
        [text_element(110, "tlsAlert")], tls_alert, fact: Some(Fact::TlsAlert), anonymisation: Some(Keep);
    flow "ja3", CaselessText, "", "JA3, a fingerprint of the TLS client: MD5, hexadecimal.",
        [text_element(73, "ja3")], |r| fingerprint(r, weir_dpi::ja3), fact: Some(Fact::TlsClientHello), anonymisation: Some(Keep);
    flow "ja3s", CaselessText, "", "JA3S, a fingerprint of the TLS server: MD5, hexadecimal.",
        [text_element(74, "ja3s")], |r| fingerprint(r, weir_dpi::ja3s), fact: Some(Fact::TlsServerHello), anonymisation: Some(Keep);
    flow "ja4", CaselessText, "", "JA4, a fingerprint of the TLS or QUIC client.",
        [text_element(75, "ja4")], |r| fingerprint(r, weir_dpi::ja4), fact: Some(Fact::TlsClientHello), anonymisation: Some(Keep);
    flow "cert_subject", CaselessText, "", "Subject of the certificate of the server (RFC 4514). TLS 1.3 encrypts it.",
        [text_element(76, "tlsCertificateSubject")], |r| fact_text(r, has_tls, Fact::CertificateSubject) => |r, v| r.set_fact(Fact::CertificateSubject, v), fact: Some(Fact::CertificateSubject), anonymisation: Some(Name);
    flow "cert_issuer", CaselessText, "", "Issuer of that certificate.",
        [text_element(77, "tlsCertificateIssuer")], |r| fact_text(r, has_tls, Fact::CertificateIssuer) => |r, v| r.set_fact(Fact::CertificateIssuer, v), fact: Some(Fact::CertificateIssuer), anonymisation: Some(Name);
    flow "cert_not_before", Time, "", "Begin of its validity.",
        [Element::weir(78, "tlsCertificateNotBefore", DateTimeMilliseconds, Semantics::Default, Units::None).only_listed()], |r| time(r, Fact::CertificateNotBefore) => |r, v| r.set_fact_time(Fact::CertificateNotBefore, v), fact: Some(Fact::CertificateNotBefore), anonymisation: Some(LeaveOut);
    flow "cert_not_after", Time, "", "End of its validity.",
        [Element::weir(79, "tlsCertificateNotAfter", DateTimeMilliseconds, Semantics::Default, Units::None).only_listed()], |r| time(r, Fact::CertificateNotAfter) => |r, v| r.set_fact_time(Fact::CertificateNotAfter, v), fact: Some(Fact::CertificateNotAfter), anonymisation: Some(LeaveOut);
    flow "cert_names", HostName, "", "Names and addresses in that certificate, separated by commas.",
        [text_element(80, "tlsCertificateNames")], |r| fact_text(r, has_tls, Fact::CertificateNames) => |r, v| r.set_fact(Fact::CertificateNames, v), is_list: true, fact: Some(Fact::CertificateNames), anonymisation: Some(Name);
    flow "quic_version", Integer, "", "Version of QUIC as in the message: 1, or 1798521807 for version 2.",
        [Element::weir(81, "quicVersion", Unsigned32, Semantics::Identifier, Units::None).only_listed()], |r| fact_number(r, Fact::QuicVersion) => |r, v| r.set_fact_number(Fact::QuicVersion, v), fact: Some(Fact::QuicVersion);
    flow "dns_name", HostName, "", "Name that the first question of DNS, mDNS or LLMNR asks for.",
        [ntop_text(205, "DNS_QUERY")], |r| fact_text(r, has_dns, Fact::DnsName) => |r, v| r.set_fact(Fact::DnsName, v), profiles: &[Store], fact: Some(Fact::DnsName), anonymisation: Some(Name);
    flow "dns_type", Integer, "", "Type of that question (IANA DNS Parameters): 1 is A, 28 is AAAA.",
        [Element::weir(82, "dnsQueryType", Unsigned16, Semantics::Identifier, Units::None).only_listed()], |r| fact_number(r, Fact::DnsType) => |r, v| r.set_fact_number(Fact::DnsType, v), fact: Some(Fact::DnsType);
    flow "dns_rcode", Integer, "", "Response code of the first answer to it, and of no other (dns_nxdomain counts): 0 is no error, 3 is NXDOMAIN.",
        [Element::weir(83, "dnsResponseCode", Unsigned16, Semantics::Identifier, Units::None).only_listed()], |r| fact_number(r, Fact::DnsRcode) => |r, v| r.set_fact_number(Fact::DnsRcode, v), words: Some(Words::ResponseCode), profiles: &[Store], fact: Some(Fact::DnsRcode);
    flow "dns_records", CaselessText, "", "Records of that answer, separated by commas.",
        [text_element(84, "dnsAnswerRecords")], |r| fact_text(r, has_dns, Fact::DnsAnswers) => |r, v| r.set_fact(Fact::DnsAnswers, v), is_list: true, fact: Some(Fact::DnsAnswers), anonymisation: Some(Name);
    flow "dns_response_ns", Integer, "ns", "Time from the first question to the first answer to it, over UDP.",
        [quantity(85, "dnsResponseTime", Unsigned64, Units::Nanoseconds).only_listed()], |r| fact_number(r, Fact::DnsResponseNs) => |r, v| r.set_fact_number(Fact::DnsResponseNs, v), fact: Some(Fact::DnsResponseNs);
    flow "dns_queries", Integer, "", "Questions of DNS, mDNS or LLMNR in the record, also retransmitted ones.",
        [quantity(111, "dnsQueries", Unsigned32, Units::Messages).only_listed()], |r| dns(r, |counts| counts.requests) => |r, v| set(&mut r.messages(false)?.requests, v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "dns_answers", Integer, "", "Answers of DNS, mDNS or LLMNR in the record.",
        [quantity(112, "dnsAnswers", Unsigned32, Units::Messages).only_listed()], |r| dns(r, |counts| counts.answers) => |r, v| set(&mut r.messages(false)?.answers, v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "dns_nxdomain", Integer, "", "Answers with the code NXDOMAIN (3).",
        [quantity(113, "dnsNxdomain", Unsigned32, Units::Messages).only_listed()], |r| dns(r, |counts| counts.codes[0]) => |r, v| set(&mut r.messages(false)?.codes[0], v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "dns_servfail", Integer, "", "Answers with the code SERVFAIL (2).",
        [quantity(114, "dnsServfail", Unsigned32, Units::Messages).only_listed()], |r| dns(r, |counts| counts.codes[1]) => |r, v| set(&mut r.messages(false)?.codes[1], v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "dns_refused", Integer, "", "Answers with the code REFUSED (5).",
        [quantity(115, "dnsRefused", Unsigned32, Units::Messages).only_listed()], |r| dns(r, |counts| counts.codes[2]) => |r, v| set(&mut r.messages(false)?.codes[2], v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "dns_other_errors", Integer, "", "Answers with another code than NoError, NXDOMAIN, SERVFAIL and REFUSED.",
        [quantity(127, "dnsOtherErrors", Unsigned32, Units::Messages).only_listed()], |r| dns(r, |counts| counts.codes[3]) => |r, v| set(&mut r.messages(false)?.codes[3], v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "dns_unanswered", Integer, "", "Questions of DNS without an answer at the end of the record, without those of `dns_forgotten`. Those that are open at an active timeout count in the next record if they stay unanswered. 0 with `--uniflow-key`, whose flows have no answers to their questions.",
        [quantity(116, "dnsUnanswered", Unsigned32, Units::Messages).only_listed()], |r| dns(r, |counts| counts.unanswered) => |r, v| set(&mut r.messages(false)?.unanswered, v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "dns_forgotten", Integer, "", "Questions of DNS that were forgotten, because more than 16 of the flow were open: it is not known whether they had an answer. They are not in `dns_unanswered`.",
        [quantity(128, "dnsForgotten", Unsigned32, Units::Messages).only_listed()], |r| dns(r, |counts| counts.forgotten) => |r, v| set(&mut r.messages(false)?.forgotten, v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "dns_response_mean_ns", Integer, "ns", "Mean time from a question to its answer, of all answers of the record.",
        [quantity(117, "dnsResponseTimeMean", Unsigned64, Units::Nanoseconds).only_listed()], |r| mean_response(r, false) => |r, v| r.set_mean_response(false, v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "dns_response_max_ns", Integer, "ns", "Longest time from a question to its answer.",
        [quantity(118, "dnsResponseTimeMaximum", Unsigned64, Units::Nanoseconds).only_listed()], |r| longest_response(r, false) => |r, v| r.set_longest_response(false, v), needs: Some(Transactions), known: Known::Never;
    flow "dst_dns_name", HostName, "", "Name that DNS taught: an earlier response of DNS gave the client the address of the server for this name. Not verified, and other names may have the same address.",
        [text_element(106, "destinationDnsName")], |r| fact_text(r, any, Fact::LearnedName) => |r, v| r.set_fact(Fact::LearnedName, v), profiles: &[Store], fact: Some(Fact::LearnedName), anonymisation: Some(Name);
    flow "http_host", HostName, "", "Host of the first request.",
        [Element::iana(460, "httpRequestHost", DataType::String).only_listed()], |r| fact_text(r, has_http, Fact::HttpHost) => |r, v| r.set_fact(Fact::HttpHost, v), profiles: &[Store], fact: Some(Fact::HttpHost), anonymisation: Some(Name);
    flow "http_method", Text, "", "Method of the first request.",
        [Element::iana(459, "httpRequestMethod", DataType::String).only_listed()], |r| fact_text(r, has_http, Fact::HttpMethod) => |r, v| r.set_fact(Fact::HttpMethod, v), profiles: &[Store], fact: Some(Fact::HttpMethod), anonymisation: Some(KnownWords(METHODS));
    flow "http_path", Text, "", "Path of the first request; only with --dpi-fields.",
        [Element::iana(461, "httpRequestTarget", DataType::String).only_listed()], |r| fact_text(r, has_http, Fact::HttpPath) => |r, v| r.set_fact(Fact::HttpPath, v), needs: Some(PersonalFields), fact: Some(Fact::HttpPath), anonymisation: Some(Name);
    flow "http_user_agent", Text, "", "User agent of the first request; only with --dpi-fields.",
        [Element::iana(468, "httpUserAgent", DataType::String).only_listed()], |r| fact_text(r, has_http, Fact::HttpUserAgent) => |r, v| r.set_fact(Fact::HttpUserAgent, v), needs: Some(PersonalFields), fact: Some(Fact::HttpUserAgent), anonymisation: Some(Name);
    flow "http_status", Integer, "", "Status of the first final response, and of no other (http_4xx and http_5xx count).",
        [Element::iana(457, "httpStatusCode", Unsigned16).only_listed()], |r| fact_number(r, Fact::HttpStatus) => |r, v| r.set_fact_number(Fact::HttpStatus, v), profiles: &[Store], fact: Some(Fact::HttpStatus);
    flow "http_content_type", CaselessText, "", "Content type of that response.",
        [Element::iana(469, "httpContentType", DataType::String).only_listed()], |r| fact_text(r, has_http, Fact::HttpContentType) => |r, v| r.set_fact(Fact::HttpContentType, v), fact: Some(Fact::HttpContentType), anonymisation: Some(Name);
    flow "http_requests", Integer, "", "Requests of HTTP/1 in the record.",
        [quantity(119, "httpRequests", Unsigned32, Units::Messages).only_listed()], |r| http(r, |counts| counts.requests) => |r, v| set(&mut r.messages(true)?.requests, v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "http_1xx", Integer, "", "Responses of HTTP/1 with a status from 100 to 199.",
        [quantity(120, "http1xxResponses", Unsigned32, Units::Messages).only_listed()], |r| http(r, |counts| counts.codes[0]) => |r, v| set(&mut r.messages(true)?.codes[0], v), needs: Some(Transactions), known: Known::Never;
    flow "http_2xx", Integer, "", "Responses of HTTP/1 with a status from 200 to 299.",
        [quantity(121, "http2xxResponses", Unsigned32, Units::Messages).only_listed()], |r| http(r, |counts| counts.codes[1]) => |r, v| set(&mut r.messages(true)?.codes[1], v), needs: Some(Transactions), known: Known::Never;
    flow "http_3xx", Integer, "", "Responses of HTTP/1 with a status from 300 to 399.",
        [quantity(122, "http3xxResponses", Unsigned32, Units::Messages).only_listed()], |r| http(r, |counts| counts.codes[2]) => |r, v| set(&mut r.messages(true)?.codes[2], v), needs: Some(Transactions), known: Known::Never;
    flow "http_4xx", Integer, "", "Responses of HTTP/1 with a status from 400 to 499.",
        [quantity(123, "http4xxResponses", Unsigned32, Units::Messages).only_listed()], |r| http(r, |counts| counts.codes[3]) => |r, v| set(&mut r.messages(true)?.codes[3], v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "http_5xx", Integer, "", "Responses of HTTP/1 with a status from 500 to 599.",
        [quantity(124, "http5xxResponses", Unsigned32, Units::Messages).only_listed()], |r| http(r, |counts| counts.codes[4]) => |r, v| set(&mut r.messages(true)?.codes[4], v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "http_response_mean_ns", Integer, "ns", "Mean time from the end of a request to the status line of its response, of all responses of the record.",
        [quantity(125, "httpResponseTimeMean", Unsigned64, Units::Nanoseconds).only_listed()], |r| mean_response(r, true) => |r, v| r.set_mean_response(true, v), needs: Some(Transactions), known: Known::Never, profiles: &[Store];
    flow "http_response_max_ns", Integer, "ns", "Longest time from the end of a request to the status line of its response.",
        [quantity(126, "httpResponseTimeMaximum", Unsigned64, Units::Nanoseconds).only_listed()], |r| longest_response(r, true) => |r, v| r.set_longest_response(true, v), needs: Some(Transactions), known: Known::Never;
    flow "ssh_client", Text, "", "Identification of the SSH client.",
        [text_element(86, "sshClientSoftware")], |r| fact_text(r, has_ssh, Fact::SshClient) => |r, v| r.set_fact(Fact::SshClient, v), fact: Some(Fact::SshClient), anonymisation: Some(Name);
    flow "ssh_server", Text, "", "Identification of the SSH server.",
        [text_element(87, "sshServerSoftware")], |r| fact_text(r, has_ssh, Fact::SshServer) => |r, v| r.set_fact(Fact::SshServer, v), fact: Some(Fact::SshServer), anonymisation: Some(Name);
    flow "hassh", CaselessText, "", "HASSH, a fingerprint of the SSH client: MD5, hexadecimal.",
        [text_element(88, "hassh")], |r| fact_text(r, has_ssh, Fact::Hassh) => |r, v| r.set_fact(Fact::Hassh, v), fact: Some(Fact::Hassh), anonymisation: Some(Keep);
    flow "hassh_server", CaselessText, "", "HASSH of the SSH server.",
        [text_element(89, "hasshServer")], |r| fact_text(r, has_ssh, Fact::HasshServer) => |r, v| r.set_fact(Fact::HasshServer, v), fact: Some(Fact::HasshServer), anonymisation: Some(Keep);
    flow "user_name", Text, "", "Account, caller or client that the first message names; only with --dpi-fields.",
        [Element::iana(371, "userName", DataType::String).only_listed()], |r| fact_text(r, has_user, Fact::User) => |r, v| r.set_fact(Fact::User, v), needs: Some(PersonalFields), fact: Some(Fact::User), anonymisation: Some(Name);
    flow "server_software", Text, "", "Software that the server names in its greeting.",
        [text_element(94, "serverSoftware")], |r| fact_text(r, has_greeting, Fact::ServerSoftware) => |r, v| r.set_fact(Fact::ServerSoftware, v), fact: Some(Fact::ServerSoftware), anonymisation: Some(Name);
    flow "ndpi_protocol", CaselessText, "", "Protocol that nDPI recognised, after a dot the service within it: TLS.Google; only with --dpi full.",
        [ntop_text(119, "L7_PROTO_NAME")], |r| fact_text(r, none, Fact::NdpiProtocol) => |r, v| r.set_fact(Fact::NdpiProtocol, v), needs: Some(Ndpi), fact: Some(Fact::NdpiProtocol), anonymisation: Some(Keep);
    flow "ndpi_category", CaselessText, "", "Category of that protocol: Web, Network.",
        [text_element(107, "ndpiCategory")], |r| fact_text(r, none, Fact::NdpiCategory) => |r, v| r.set_fact(Fact::NdpiCategory, v), needs: Some(Ndpi), fact: Some(Fact::NdpiCategory), anonymisation: Some(Keep);
    flow "ndpi_confidence", CaselessText, "", "How nDPI knows the protocol: DPI, Match by IP.",
        [text_element(108, "ndpiConfidence")], |r| fact_text(r, none, Fact::NdpiConfidence) => |r, v| r.set_fact(Fact::NdpiConfidence, v), needs: Some(Ndpi), fact: Some(Fact::NdpiConfidence), anonymisation: Some(Keep);
    flow "ndpi_risks", CaselessText, "", "Risks that nDPI sees, separated by commas.",
        [text_element(109, "ndpiRisks")], |r| fact_text(r, none, Fact::NdpiRisks) => |r, v| r.set_fact(Fact::NdpiRisks, v), needs: Some(Ndpi), is_list: true, fact: Some(Fact::NdpiRisks), anonymisation: Some(Keep);
}

#[inline]
fn application(record: &DirectionView<'_>) -> Option<(Application, Confidence)> {
    record.flow.findings.as_ref()?.application()
}

#[inline]
fn notes<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    optional(record.flow.findings.as_ref().filter(|findings| findings.notes() != Notes::default()), |findings| {
        FieldValue::Notes(findings.notes())
    })
}

/// A text; `may_have`: whether flows of an application may have it.
fn fact_text<'a>(record: &DirectionView<'a>, may_have: fn(Application) -> bool, fact: Fact) -> FieldValue<'a> {
    fact_or_none(record, may_have, |findings| findings.text(fact).map(text))
}

/// A text that follows from a fact. No value if flows of this application may have one, so that
/// they have the same template.
fn fact_or_none<'a>(
    record: &DirectionView<'a>,
    may_have: fn(Application) -> bool,
    read: impl FnOnce(&'a Findings) -> Option<FieldValue<'a>>,
) -> FieldValue<'a> {
    let Some(findings) = record.flow.findings.as_deref() else { return FieldValue::NotApplicable };
    let none = match findings.application() {
        Some((application, _)) if may_have(application) => FieldValue::NoValue,
        _ => FieldValue::NotApplicable,
    };
    read(findings).unwrap_or(none)
}

fn has_tls(application: Application) -> bool {
    matches!(application, Application::Tls | Application::Dtls)
}

fn has_client_hello(application: Application) -> bool {
    has_tls(application) || application == Application::Quic
}

fn has_dns(application: Application) -> bool {
    matches!(application, Application::Dns | Application::Mdns | Application::Llmnr)
}

fn has_http(application: Application) -> bool {
    matches!(application, Application::Http | Application::Http2)
}

fn has_ssh(application: Application) -> bool {
    application == Application::Ssh
}

fn has_greeting(application: Application) -> bool {
    use Application::{Ftp, Imap, Mysql, Pop3, Smtp};
    matches!(application, Smtp | Imap | Pop3 | Ftp | Mysql)
}

fn has_user(application: Application) -> bool {
    !(has_client_hello(application) || has_dns(application) || has_http(application) || has_ssh(application))
}

/// Learned names are those of any application.
fn any(_: Application) -> bool {
    true
}

/// nDPI's results do not depend on the application.
fn none(_: Application) -> bool {
    false
}

fn fact_number(record: &DirectionView<'_>, fact: Fact) -> FieldValue<'static> {
    let number = record.flow.findings.as_ref().and_then(|findings| findings.number(fact));
    optional(number, FieldValue::Unsigned)
}

/// The counts of the messages of a record, if they are counted and of this protocol.
fn messages<'a>(record: &DirectionView<'a>, is_http: bool) -> Option<&'a MessageCounts> {
    record.flow.findings.as_ref()?.messages().filter(|counts| counts.is_http == is_http)
}

fn dns(record: &DirectionView<'_>, read: fn(&MessageCounts) -> u32) -> FieldValue<'static> {
    optional(messages(record, false), |counts| FieldValue::Unsigned(read(counts).into()))
}

fn http(record: &DirectionView<'_>, read: fn(&MessageCounts) -> u32) -> FieldValue<'static> {
    optional(messages(record, true), |counts| FieldValue::Unsigned(read(counts).into()))
}

fn mean_response(record: &DirectionView<'_>, is_http: bool) -> FieldValue<'static> {
    let mean = messages(record, is_http).and_then(|counts| counts.response_sum_ns.checked_div(counts.timed.into()));
    optional(mean, FieldValue::Unsigned)
}

fn longest_response(record: &DirectionView<'_>, is_http: bool) -> FieldValue<'static> {
    let longest = messages(record, is_http).filter(|counts| counts.timed > 0).map(|counts| counts.response_max_ns);
    optional(longest, FieldValue::Unsigned)
}

/// A time within the years that ns since 1970 can tell.
fn time(record: &DirectionView<'_>, fact: Fact) -> FieldValue<'static> {
    let seconds = record.flow.findings.as_ref().and_then(|findings| findings.number(fact));
    optional(seconds.and_then(|seconds| seconds.checked_mul(1_000_000_000)), FieldValue::Time)
}

fn fingerprint<'a, const N: usize>(record: &DirectionView<'a>, of: fn(&Findings) -> Option<[u8; N]>) -> FieldValue<'a> {
    let read = |findings| String::from_utf8(of(findings)?.into()).ok().map(|text| FieldValue::Text(text.into()));
    fact_or_none(record, has_client_hello, read)
}

/// Versions of TLS, SSL and DTLS by their numbers.
const TLS_VERSIONS: [(u64, &str); 8] = [
    (0x0300, "ssl3.0"),
    (0x0301, "tls1.0"),
    (0x0302, "tls1.1"),
    (0x0303, "tls1.2"),
    (0x0304, "tls1.3"),
    (0xfeff, "dtls1.0"),
    (0xfefd, "dtls1.2"),
    (0xfefc, "dtls1.3"),
];

fn tls_version<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    let known = |version| TLS_VERSIONS.iter().find(|(number, _)| *number == version);
    let name = |version| known(version).map_or_else(|| format!("{version:#06x}").into(), |(_, name)| (*name).into());
    fact_or_none(record, has_client_hello, |findings| {
        findings.number(Fact::TlsVersion).map(|version| FieldValue::Text(name(version)))
    })
}

fn tls_version_number(name: &str) -> Option<u64> {
    let known = TLS_VERSIONS.iter().find(|(_, known)| *known == name).map(|(number, _)| *number);
    known.or_else(|| u64::from_str_radix(name.strip_prefix("0x")?, 16).ok())
}

fn tls_alert<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    fact_or_none(record, has_client_hello, |findings| {
        let alert = findings.number(Fact::TlsAlert)?;
        let (level, description) = (alert >> 8, alert & 0xff);
        let name = |name: Option<&'static str>, number: u64| name.map_or_else(|| number.to_string(), String::from);
        let level = name(["warning", "fatal"].get((level as usize).wrapping_sub(1)).copied(), level);
        Some(FieldValue::Text(format!("{level} {}", name(alert_name(description), description)).into()))
    })
}

/// Name of the description of an alert (IANA TLS Alerts).
fn alert_name(description: u64) -> Option<&'static str> {
    Some(match description {
        0 => "close_notify",
        10 => "unexpected_message",
        20 => "bad_record_mac",
        21 => "decryption_failed",
        22 => "record_overflow",
        30 => "decompression_failure",
        40 => "handshake_failure",
        41 => "no_certificate",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        52 => "too_many_cids_requested",
        60 => "export_restriction",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        90 => "user_canceled",
        100 => "no_renegotiation",
        109 => "missing_extension",
        110 => "unsupported_extension",
        111 => "certificate_unobtainable",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        114 => "bad_certificate_hash_value",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        117 => "general_error",
        120 => "no_application_protocol",
        121 => "ech_required",
        _ => return None,
    })
}
