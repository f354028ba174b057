//! When templates, options records and type information are sent: at the start, and over UDP regularly,
//! and soon after a message was lost.

use std::time::{Duration, Instant};

/// Over UDP all templates are retransmitted when the data sent since then is this many times
/// longer, after at least [`MIN_MESSAGES_BETWEEN_TEMPLATES`].
const DATA_PER_TEMPLATE_OCTET: usize = 100;
const MIN_MESSAGES_BETWEEN_TEMPLATES: u32 = 20;
/// In this time after the start, templates are retransmitted more often, for a collector that
/// starts shortly after Weir.
const EARLY: Duration = Duration::from_secs(60);
const EARLY_TEMPLATE_REFRESH: Duration = Duration::from_secs(1);
/// The same after a message was lost.
const TEMPLATE_REFRESH_AFTER_LOSS: Duration = Duration::from_secs(1);

pub(super) struct RefreshSchedule {
    /// Time after which templates and type information are retransmitted over UDP.
    refresh: Duration,
    is_udp: bool,
    started: Option<Instant>,
    interval_start: Option<Instant>,
    /// Time of the last transmission of templates and type information.
    all_sent_at: Option<Instant>,
    /// Time of the last transmission of templates.
    templates_sent_at: Option<Instant>,
    messages_since_templates: u32,
    octets_since_templates: usize,
    /// A message was lost since the last transmission of templates.
    lost_since_templates: bool,
    /// The metering status has changed so that collectors have to know it at once.
    status_changed: bool,
}

/// What is to be sent.
#[derive(Clone, Copy)]
pub(super) struct Due {
    pub type_information: bool,
    pub templates: bool,
    pub options: bool,
    /// The options records have the names of applications.
    pub names: bool,
}

impl RefreshSchedule {
    pub fn new(refresh: Duration, is_udp: bool) -> Self {
        Self {
            refresh,
            is_udp,
            started: None,
            interval_start: None,
            all_sent_at: None,
            templates_sent_at: None,
            messages_since_templates: 0,
            octets_since_templates: 0,
            lost_since_templates: false,
            status_changed: false,
        }
    }

    /// Whether anything was sent since the last restart.
    pub fn has_started(&self) -> bool {
        self.started.is_some()
    }

    /// Sends all at the start of an output, of a file, or of a connection.
    pub fn restart(&mut self) {
        (self.started, self.all_sent_at) = (None, None);
    }

    /// The same if a message is not in the file.
    pub fn restart_after_loss(&mut self) {
        if self.lost_since_templates {
            self.restart();
        }
    }

    /// A new file has lost nothing.
    pub fn forget_losses(&mut self) {
        self.lost_since_templates = false;
    }

    pub fn note_status_change(&mut self) {
        self.status_changed = true;
    }

    /// Notes a message of this length.
    pub fn note_message(&mut self, octets: usize) {
        self.messages_since_templates += 1;
        self.octets_since_templates += octets;
    }

    pub fn note_loss(&mut self) {
        self.lost_since_templates = true;
    }

    /// Messages with templates may be lost.
    pub fn note_smaller_path_mtu(&mut self) {
        self.all_sent_at = None;
    }

    /// What is due, if the templates have this length. The clock is not read for a file.
    pub fn due(&self, template_octets: usize) -> Option<Due> {
        let due = |sent_at: Option<Instant>, interval| sent_at.is_none_or(|at| self.is_udp && at.elapsed() >= interval);
        let interval = if self.lost_since_templates { TEMPLATE_REFRESH_AFTER_LOSS } else { self.refresh };
        let all = due(self.all_sent_at, interval);
        let early = !due(self.started, EARLY) && due(self.templates_sent_at, EARLY_TEMPLATE_REFRESH);
        let after_data = self.is_udp
            && self.messages_since_templates >= MIN_MESSAGES_BETWEEN_TEMPLATES
            && self.octets_since_templates >= DATA_PER_TEMPLATE_OCTET * template_octets;
        let names = all || early;
        let due =
            Due { type_information: all, templates: names || after_data, options: names || self.status_changed, names };
        (due.templates || due.options).then_some(due)
    }

    /// Notes that what is due is sent now. Returns whether a refresh interval begins.
    pub fn begin(&mut self, due: Due, now: Instant) -> bool {
        self.started.get_or_insert(now);
        self.status_changed &= !due.options;
        if !due.type_information {
            return false;
        }
        (self.all_sent_at, self.lost_since_templates) = (Some(now), false);
        let begins = self.is_udp && self.interval_start.is_none_or(|start| now - start >= self.refresh);
        if begins {
            self.interval_start = Some(now);
        }
        begins
    }

    /// Notes that templates were sent: data is counted from here on.
    pub fn note_templates(&mut self, now: Instant) {
        self.templates_sent_at = Some(now);
        (self.messages_since_templates, self.octets_since_templates) = (0, 0);
    }
}
