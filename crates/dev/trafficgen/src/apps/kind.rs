//! The kinds of conversations, and their shares.

use crate::conversation::{NAMES, QUIC, SSH, Service, WEB};
use crate::frame::TCP;
use crate::random::{Fraction, Random};
use weir_capture::{SettingsError, SourceSettings};

/// How a conversation begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Tls12,
    Tls13,
    Quic,
    Http,
    DnsUdp,
    DnsTcp,
    Ssh,
    UnknownTcp,
    #[default]
    UnknownUdp,
    Undecided,
}

/// The kinds whose shares are settings, with the defaults in percent. Those over UDP stand for both
/// transports.
const SHARES: [(Kind, u64); 8] = [
    (Kind::Tls12, 15),
    (Kind::Tls13, 35),
    (Kind::Quic, 20),
    (Kind::Http, 8),
    (Kind::DnsUdp, 15),
    (Kind::Ssh, 2),
    (Kind::UnknownUdp, 5),
    (Kind::Undecided, 0),
];
/// One DNS conversation in this number is over TCP.
const DNS_OVER_TCP: u64 = 8;

const HTTP: Service = Service { port: 80, ..WEB };
const DNS_UDP: Service = Service { segments: [2, 2], ..NAMES };
const DNS_TCP: Service = Service { protocol: TCP, segments: [1, 1], ..NAMES };
const UNKNOWN_TCP: Service = Service { port: 7001, segments: [4, 2_000], ..WEB };
const UNKNOWN_UDP: Service = Service { port: 7002, segments: [4, 2_000], ..QUIC };
const UNDECIDED: Service = Service { port: 7003, segments: [1, 1], round: [1, 1], ..WEB };

impl Kind {
    /// The name of its share, which is the key of the setting; the application that a reader recognises,
    /// empty if none; and its traffic.
    fn properties(self) -> (&'static str, &'static str, &'static Service) {
        match self {
            Self::Tls12 => ("tls12", "tls", &WEB),
            Self::Tls13 => ("tls13", "tls", &WEB),
            Self::Quic => ("quic", "quic", &QUIC),
            Self::Http => ("http", "http", &HTTP),
            Self::DnsUdp => ("dns", "dns", &DNS_UDP),
            Self::DnsTcp => ("dns", "dns", &DNS_TCP),
            Self::Ssh => ("ssh", "ssh", &SSH),
            Self::UnknownTcp => ("unknown", "", &UNKNOWN_TCP),
            Self::UnknownUdp => ("unknown", "", &UNKNOWN_UDP),
            Self::Undecided => ("undecided", "", &UNDECIDED),
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.properties().0
    }

    pub(super) fn application(self) -> &'static str {
        self.properties().1
    }

    pub(super) fn service(self) -> &'static Service {
        self.properties().2
    }

    pub(super) fn is_tcp(self) -> bool {
        self.service().protocol == TCP
    }
}

/// The share of each kind, in billionths.
pub(super) struct Shares([u64; SHARES.len()]);

impl Shares {
    /// Reads the shares. Those that are not given have the rest, in proportion to their defaults.
    pub(super) fn read(values: &SourceSettings<'_>) -> Result<Self, SettingsError> {
        let all = Fraction::ALL.0;
        let mut given = [None; SHARES.len()];
        for (share, (kind, _)) in given.iter_mut().zip(SHARES) {
            *share = values.fraction_billionths(kind.name())?;
        }
        let sum: u64 = given.iter().flatten().sum();
        let defaults: u64 =
            SHARES.iter().zip(given).filter(|(_, given)| given.is_none()).map(|(share, _)| share.1).sum();
        if sum > all || (defaults == 0 && sum < all) {
            let last = SHARES.iter().rev().find_map(|(kind, _)| Some((kind.name(), values.get(kind.name())?)));
            let (name, value) = last.unwrap_or_default();
            let reason = format!("the shares of all kinds add up to {} %", sum as f64 * 1e2 / all as f64);
            return Err(SettingsError::Value(name, value.into(), reason));
        }
        let default = |at: usize| (all - sum) * SHARES[at].1 / defaults.max(1);
        Ok(Self(std::array::from_fn(|at| given[at].unwrap_or_else(|| default(at)))))
    }

    /// Draws a kind.
    pub(super) fn kind(&self, random: &mut Random) -> Kind {
        let at = random.weighted(self.0.iter().sum(), self.0);
        let bits = random.next_u64();
        match at.map_or(Kind::UnknownUdp, |at| SHARES[at].0) {
            Kind::DnsUdp if bits.is_multiple_of(DNS_OVER_TCP) => Kind::DnsTcp,
            Kind::UnknownUdp if bits.is_multiple_of(2) => Kind::UnknownTcp,
            kind => kind,
        }
    }
}
