//! What SIGHUP and the HTTP interface load again: configuration, rules, and the files of enrichment.

use super::reload::Reloader;
use crate::actions::RulesReloader;
use crate::enrichment::{EnrichmentReloader, ReloadResult};
use weir_control::InEffect;

pub struct Reloaders {
    pub configuration: Reloader,
    pub rules: RulesReloader,
    pub enrichment: EnrichmentReloader,
}

/// Results of what has ended.
pub struct Reloaded {
    pub configuration: Option<ReloadResult>,
    /// That of the rules is part of it.
    pub lists: Option<ReloadResult>,
}

impl Reloaders {
    /// Whether nothing is loaded, and nothing will be.
    pub fn is_idle(&self) -> bool {
        self.configuration.is_idle() && self.enrichment.is_idle()
    }

    /// Starts to load everything again if that is requested, and applies what is ready. Call it often.
    pub fn update(&mut self, is_requested: bool, probe: &mut weir_probe::Probe) -> Reloaded {
        let lists = self.enrichment.update(is_requested);
        let configuration = self.configuration.update(is_requested, probe);
        if is_requested {
            self.rules.reload(probe);
        }
        Reloaded { configuration, lists: self.rules.add_to(lists) }
    }

    /// What is in effect, for the HTTP interface.
    pub fn in_effect(&self) -> InEffect {
        let (rules, lists) = (self.rules.in_effect(), self.enrichment.lists());
        InEffect { rules, lists, timeouts: self.configuration.timeouts() }
    }
}
