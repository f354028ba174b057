/// Numbers of errors (`rd_kafka_resp_err_t`): those of the protocol are positive, librdkafka's own negative.
pub mod code {
    /// The client is ended.
    const DESTROY: i32 = -197;
    /// No connection to a broker could be made, or it was lost.
    pub const TRANSPORT: i32 = -195;
    /// The name of a broker has no address.
    pub const RESOLVE: i32 = -193;
    /// No broker has taken the message in time.
    pub const MESSAGE_TIMED_OUT: i32 = -192;
    /// No broker can be reached.
    pub const ALL_BROKERS_DOWN: i32 = -187;
    /// The queue of the client is full.
    pub const QUEUE_FULL: i32 = -184;
    /// TLS failed.
    pub const SSL: i32 = -181;
    /// A broker refused user and password, or certificate.
    pub const AUTHENTICATION: i32 = -169;
    /// The client permits this in another state only.
    const STATE: i32 = -172;
    /// The message was given up before it was sent, or while a broker had it.
    const PURGED: [i32; 2] = [-152, -151];
    /// The client can do nothing any longer.
    pub const FATAL: i32 = -150;
    /// The broker has no such topic.
    pub const UNKNOWN_TOPIC: i32 = 3;
    /// The topic has just been created.
    pub const NO_LEADER: i32 = 5;
    /// What brokers know of the client and its transaction: sequence number, identifier, epoch, state, fencing.
    const PRODUCER: [i32; 8] = [45, 46, 47, 48, 49, 51, 59, 90];

    /// Whether a message has this error because of its client, or the connection: another client may send it.
    pub fn is_of_client(error: i32) -> bool {
        let own = [DESTROY, TRANSPORT, MESSAGE_TIMED_OUT, STATE, AUTHENTICATION, FATAL];
        own.iter().chain(&PURGED).chain(&PRODUCER).any(|&of_client| of_client == error)
    }
}

/// What a producer cannot do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library was not found.
    #[error(
        "librdkafka is not installed; install the package librdkafka1 (Debian, Ubuntu) or librdkafka (Fedora, RHEL, \
         Alpine) ({0})"
    )]
    NoLibrary(libloading::Error),
    /// librdkafka refuses an option. The message has no value of it.
    #[error("{name}: {reason}")]
    Option {
        /// Its name.
        name: String,
        /// Why, in librdkafka's words.
        reason: String,
    },
    /// librdkafka makes no client with these options.
    #[error("librdkafka refuses the options: {0}")]
    Client(String),
    /// A text has a NUL character.
    #[error("{0} has a NUL character")]
    Nul(&'static str),
    /// The topic cannot be used.
    #[error("the topic {topic:?} cannot be used: {reason}")]
    Topic {
        /// Its name.
        topic: String,
        /// Why, in librdkafka's words.
        reason: String,
    },
    /// No broker answered in time.
    #[error("{0}")]
    Unreachable(String),
}

impl Error {
    /// Whether no broker answered.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}
