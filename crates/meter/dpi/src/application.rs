//! Applications, and how sure inspection is.

/// Defines the applications with the name, and the words that describe it.
macro_rules! applications {
    ($($variant:ident = $number:literal $name:literal $description:literal;)+) => {
        /// The application protocol of a flow. The numbers are those of exported records and do not
        /// change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Application {
            $(#[doc = $description] $variant = $number,)+
        }

        impl Application {
            /// All applications, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The value of the field `application`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What the protocol is.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => $description,)+ }
            }
        }
    };
}

applications! {
    Tls = 1 "tls" "TLS 1.0 to 1.3 (RFC 8446) and SSL 3.0 (RFC 6101).";
    Quic = 2 "quic" "QUIC version 1 (RFC 9000) and 2 (RFC 9369).";
    Dns = 3 "dns" "DNS over UDP or TCP (RFC 1035).";
    Mdns = 4 "mdns" "Multicast DNS (RFC 6762).";
    Llmnr = 5 "llmnr" "Link-local multicast name resolution (RFC 4795).";
    Http = 6 "http" "HTTP/1.0 and HTTP/1.1 (RFC 9112).";
    Http2 = 7 "http2" "HTTP/2 with prior knowledge (RFC 9113).";
    Ssh = 8 "ssh" "SSH (RFC 4253).";
    Ntp = 9 "ntp" "NTP (RFC 5905).";
    Smtp = 10 "smtp" "SMTP (RFC 5321).";
    Imap = 11 "imap" "IMAP (RFC 9051).";
    Pop3 = 12 "pop3" "POP3 (RFC 1939).";
    Ftp = 13 "ftp" "FTP, its control connection (RFC 959).";
    Sip = 14 "sip" "SIP (RFC 3261).";
    Rtp = 15 "rtp" "RTP (RFC 3550).";
    Snmp = 16 "snmp" "SNMP versions 1, 2c and 3 (RFC 3416).";
    Mqtt = 17 "mqtt" "MQTT 3.1, 3.1.1 and 5.0 (OASIS).";
    Stun = 18 "stun" "STUN (RFC 8489).";
    Dtls = 19 "dtls" "DTLS 1.0 to 1.3 (RFC 9147).";
    Rdp = 20 "rdp" "RDP, its connection request (MS-RDPBCGR).";
    Smb = 21 "smb" "SMB versions 1 to 3 (MS-SMB2).";
    Kerberos = 22 "kerberos" "Kerberos 5 (RFC 4120).";
    Ldap = 23 "ldap" "LDAP (RFC 4511).";
    Postgresql = 24 "postgresql" "The frontend/backend protocol of PostgreSQL, version 3.";
    Mysql = 25 "mysql" "The client/server protocol of MySQL and MariaDB.";
    Redis = 26 "redis" "RESP, the protocol of Redis.";
    Bittorrent = 27 "bittorrent" "BitTorrent: peer protocol (BEP 3), DHT (BEP 5), uTP (BEP 29).";
    Wireguard = 28 "wireguard" "WireGuard, its handshake.";
    Openvpn = 29 "openvpn" "OpenVPN, its handshake.";
}

/// How inspection knows the application, from the most to the least certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Confidence {
    /// A message was parsed that only this protocol has: magic numbers, lengths and types agree, or
    /// a decryption succeeded.
    Message = 1,
    /// Octets have the form of the protocol, but other protocols could have it by chance.
    Pattern = 2,
    /// Another flow announced this one (SIP announces RTP).
    Announced = 3,
    /// Only the port number suggests it.
    Port = 4,
}

impl Confidence {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Message, Self::Pattern, Self::Announced, Self::Port];

    /// The value of the field `application_by`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Pattern => "pattern",
            Self::Announced => "announced",
            Self::Port => "port",
        }
    }
}
