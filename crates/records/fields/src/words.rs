//! The words that fields have as values.

use crate::{FieldValue, TcpFailure};
use weir_dpi::{Application, Confidence, Note};
use weir_flow::{Approximate, EndReason};
use weir_packet::TunnelType;
use weir_tcp::Degradation;

/// The words that a field can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// Why a flow ended.
    EndReason,
    /// A type of tunnel.
    TunnelType,
    /// Why a record is not exact: a set of words.
    Approximate,
    /// Why TCP analysis is not exact: a set of words.
    TcpDegraded,
    /// How a TCP connection failed.
    TcpFailure,
    /// An application.
    Application,
    /// How an application is known.
    ApplicationBy,
    /// Limits of inspection that were met: a set of words.
    ApplicationNotes,
    /// A response code of DNS: a number that has names.
    ResponseCode,
}

/// IANA, *DNS RCODEs*.
const RESPONSE_CODES: [(u64, &str); 11] = [
    (0, "NoError"),
    (1, "FormErr"),
    (2, "ServFail"),
    (3, "NXDomain"),
    (4, "NotImp"),
    (5, "Refused"),
    (6, "YXDomain"),
    (7, "YXRRSet"),
    (8, "NXRRSet"),
    (9, "NotAuth"),
    (10, "NotZone"),
];

impl Words {
    /// All words with their numbers; with their bits if a field has several words.
    pub fn all(self) -> Vec<(u64, &'static str)> {
        match self {
            Self::EndReason => EndReason::ALL.map(|reason| (reason as u64, reason.name())).into(),
            Self::TunnelType => {
                TunnelType::ALL.iter().filter_map(|&tunnel| Some((tunnel as u64, tunnel.name()?))).collect()
            }
            Self::Approximate => Approximate::NAMES.map(|(bit, name)| (bit.into(), name)).into(),
            Self::TcpDegraded => Degradation::NAMES.map(|(bit, name)| (bit.into(), name)).into(),
            Self::TcpFailure => TcpFailure::ALL.map(|failure| (failure as u64, failure.name())).into(),
            Self::Application => Application::ALL.iter().map(|&known| (known as u64, known.name())).collect(),
            Self::ApplicationBy => Confidence::ALL.map(|by| (by as u64, by.name())).into(),
            Self::ResponseCode => RESPONSE_CODES.into(),
            Self::ApplicationNotes => Note::NAMES.map(|(note, name)| (note as u64, name)).into(),
        }
    }

    /// The word for a number of a field whose values are numbers in JSON and CSV.
    pub fn of_number(self, value: &FieldValue<'_>) -> Option<&'static str> {
        let (Self::ResponseCode, FieldValue::Unsigned(number)) = (self, value) else { return None };
        RESPONSE_CODES.iter().find(|(code, _)| code == number).map(|(_, word)| *word)
    }

    /// Whether a field has several of the words.
    pub fn are_a_set(self) -> bool {
        matches!(self, Self::Approximate | Self::TcpDegraded | Self::ApplicationNotes)
    }
}
