//! The words that fields have as values.

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
    /// An application.
    Application,
    /// How an application is known.
    ApplicationBy,
    /// Limits of inspection that were met: a set of words.
    ApplicationNotes,
}

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
            Self::Application => Application::ALL.iter().map(|&known| (known as u64, known.name())).collect(),
            Self::ApplicationBy => Confidence::ALL.map(|by| (by as u64, by.name())).into(),
            Self::ApplicationNotes => Note::NAMES.map(|(note, name)| (note as u64, name)).into(),
        }
    }

    /// Whether a field has several of the words.
    pub fn are_a_set(self) -> bool {
        matches!(self, Self::Approximate | Self::TcpDegraded | Self::ApplicationNotes)
    }
}
