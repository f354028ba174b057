//! Errors: what a command is given to read.

use super::advice::live_source;

/// What a command is given to read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("nothing to read: name {wanted}, or - for standard input (weir {command} --help)")]
    NoInput { command: &'static str, wanted: &'static str },
    #[error("an input name is empty; is a shell variable not set? (weir {command} --help)")]
    EmptyInputName { command: &'static str },
    #[error("standard input (-) can be read only once")]
    StandardInputTwice,
    #[error(
        "{0}: weir tcp reads captures, not live traffic; record some traffic first (tcpdump -w), or meter it with weir \
         read -i {live}", live = live_source(.0)
    )]
    TcpOfLiveTraffic(String),
    #[error(
        "{0}: weir view shows captures and stored flows, not live traffic; weir probe -i {live} --listen 9477 has the page \
         of an interface", live = live_source(.0)
    )]
    ViewOfLiveTraffic(String),
    #[error("{0}: this is served already: open it in a browser, or watch it with 'weir top {0}'")]
    ViewOfUrl(String),
    #[error("--packets {0}: a pipe is read once, and packets of flows are searched again and again; save it to a file")]
    PacketsOfPipe(String),
    #[error("{0}: the flows of a store have what they were stored with; leave it out")]
    EnrichedStore(&'static str),
    #[error("--open: there is no program {0}; open the address that is printed without this option")]
    NoOpener(&'static str),
    #[error("{0}: live traffic is read alone; leave out the other inputs")]
    LiveNotAlone(String),
    #[error(
        "{0}: weir read reads one receive queue; use weir probe, or leave out queues=N (with af_xdp: use queues=0)"
    )]
    SeveralQueues(String),
    #[error(
        "af_xdp:{0} takes all loopback traffic away from this machine, and programs that use it stop working; \
         af_packet:{0} leaves it there (--force captures nevertheless)"
    )]
    Loopback(String),
    #[error("--from is later than --to")]
    FromAfterTo,
    #[error("{0}: flows and packets cannot be read together")]
    FlowsAndPackets(String),
    #[error("{place}: {field} is not known of the stored flows (weir help store)")]
    NotStored { place: String, field: String },
    #[error("{place}: transactions do not have {field}{near} (weir help transactions)")]
    NotOfTransactions { place: String, field: String, near: String },
    #[error("{0} needs packets: stored flows are metered already")]
    NeedsPackets(&'static str),
    #[error("{file}: a file of packet records has decoded headers and no octets of packets; leave out {option}")]
    OctetsOfPackets { file: String, option: &'static str },
}
