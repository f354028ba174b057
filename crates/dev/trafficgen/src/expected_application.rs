//! The expected applications (ground truth) of the profile `apps`.

/// A fact of a conversation that a reader can find: its index in [`ExpectedApplication::FACTS`].
pub(super) type Fact = usize;

pub(super) const SERVER_NAME: Fact = 0;
pub(super) const PROTOCOLS_OFFERED: Fact = 1;
pub(super) const PROTOCOL: Fact = 2;
pub(super) const HTTP_HOST: Fact = 3;
pub(super) const DNS_NAME: Fact = 4;
pub(super) const SSH_CLIENT: Fact = 5;
pub(super) const SSH_SERVER: Fact = 6;

/// The application of a flow of the profile `apps`, and what its first packets show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedApplication {
    /// How the flow begins: the name of the share that it belongs to.
    pub kind: &'static str,
    /// The application protocol; empty if it is of none that is known, or no payload was sent.
    pub application: &'static str,
    /// The facts that its messages have, as far as they were sent, in the order of [`Self::FACTS`].
    pub facts: [Option<String>; Self::FACTS.len()],
    /// What was done to its first packets, as far as they were sent, in words of the settings.
    pub first_packets: Vec<&'static str>,
    /// Names of the facts that the captured octets do not show, because others before them are
    /// missing.
    pub hidden: Vec<&'static str>,
    /// The traffic ended before the flow had sent all its first packets.
    pub is_cut: bool,
}

impl ExpectedApplication {
    /// Names of the facts.
    pub const FACTS: [&'static str; 7] =
        ["sni", "alpn_offered", "alpn", "http_host", "dns_name", "ssh_client", "ssh_server"];
    /// Returns the column headers for [`Self::values`].
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["conversation", "application"].into_iter().chain(Self::FACTS).chain(["first_packets", "hidden"])
    }

    /// Returns all values as text, in the order of [`Self::names`]. Lists are separated by spaces.
    pub fn values(&self) -> impl Iterator<Item = String> {
        let events = self.first_packets.iter().copied().chain(self.is_cut.then_some("cut"));
        let lists = [events.collect::<Vec<_>>(), self.hidden.clone()].map(|list| list.join(" "));
        let facts = self.facts.clone().map(Option::unwrap_or_default);
        [self.kind, self.application].map(String::from).into_iter().chain(facts).chain(lists)
    }
}
