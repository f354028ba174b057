//! Why a command failed (exit code 1). The libraries state what is wrong; this file adds what the
//! user can do about it.

use std::io;
use std::path::PathBuf;
use weir_enrich::Problem;
use weir_export::UnusableFile;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    // Command line and configuration file.
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
    #[error("{file}: a packets file has decoded headers and no octets of packets; leave out {option}")]
    OctetsOfPackets { file: String, option: &'static str },
    #[error(
        "{output}: a packets file has packets, not flow records; leave out {option}, and give it when the file is read"
    )]
    PacketsOutput { output: String, option: &'static str },
    #[error("packets: needs the name of a file, or - for standard output (packets:FILE)")]
    NoPacketsPath,
    #[error("{0} is named twice: each of its packets would be counted twice; name it once")]
    DuplicateSource(String),
    #[error("--meters needs --layout spread: the other layouts have one metering thread per queue")]
    MetersWithoutSpread,
    #[error("--dpi light and full need --layout fused: with the other layouts, threads that meter get no payload")]
    InspectionNeedsFused,
    #[error("--dpi full: this weir was built without nDPI; build it with --features ndpi")]
    NoNdpi,
    #[error(
        "{option}: core {core} is not available to this program, which may use {available} cores (see nproc, lscpu -e)"
    )]
    CoreNotAvailable { option: &'static str, core: usize, available: usize },
    #[error("{output} is also the input {input} and would overwrite it; name another file")]
    OverwritesInput { output: String, input: String },
    #[error("{output} and {other} would be mixed in one file; give each a file of its own")]
    SharedOutput { output: String, other: String },
    #[error("{0}: name a file, or - for standard output")]
    NoTablePath(String),
    #[error("{0}: a table or a view is written once, at the end; remove rotate=")]
    RotatedTable(String),
    #[error("{0}: packets would be mixed with the log; name a file or a pipe of their own")]
    PacketsInLog(String),
    #[error("a capture is not readable on a terminal; name a file, or pipe it to a program")]
    CaptureToTerminal,
    #[error("{0}")]
    Usage(#[from] clap::Error),
    /// What the command line parser says about an option.
    #[error("{0}")]
    Option(String),
    #[error("{}", rules_problems(.path, .problems))]
    Rules { path: PathBuf, problems: RulesProblems },
    #[error("{path}: {error}{}", input_advice(error))]
    RulesFile { path: String, error: io::Error },
    #[error("{path}: it has more than {most} MiB, which is too long for rules; is the name right?")]
    RulesTooLong { path: String, most: u64 },
    #[error("{0}")]
    Egress(weir_egress::Error),
    #[error(
        "{0}: [hold] octets cannot grow beyond 64 MiB, or what they were at the start, while the probe runs; restart it for that"
    )]
    ReloadEnlargesHold(String),
    #[error("{0}: outputs cannot change while the probe runs; restart it for that")]
    ReloadChangesEgress(String),
    #[error(
        "--rules: line {line}: '{rule}' never matches: no flow has {field} without {option}; add it, or remove the rule"
    )]
    RuleNeedsOption { rule: String, line: usize, field: &'static str, option: &'static str },
    #[error("--rules: line {line}: '{rule}' never matches: no list has the tag {tag}; --tags has {lists}")]
    RuleNeedsTag { rule: String, line: usize, tag: String, lists: String },
    #[error("--rules needs --layout fused: with the other layouts, threads that meter have no frames")]
    RulesNeedFused,
    #[error("{path}: {error}")]
    ConfigSyntax { path: String, error: toml::de::Error },
    #[error("{path}: line {line}: {key}: {problem}")]
    ConfigEntry { path: String, line: usize, key: String, problem: ConfigProblem },

    // Files, sources and sinks.
    #[error("{path}: {error}{}", advice(error))]
    File { path: String, error: io::Error },
    #[error("{path}: {error}{}", input_advice(error))]
    ConfigFile { path: String, error: io::Error },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Sources(Vec<SourceError>),
    /// All that is wrong, each a line.
    #[error("{}", lines(.0))]
    Problems(Vec<Error>),
    #[error("{}", enrichment_with_advice(.0))]
    Enrichment(Vec<weir_enrich::Error>),
    #[error(transparent)]
    Live(weir_capture::Error),
    #[error(transparent)]
    Filter(#[from] weir_capture::FilterError),
    #[error(transparent)]
    Traffic(#[from] weir_capture::SettingsError),
    #[error("{error}{}", sink_advice(.error))]
    Sink {
        #[from]
        error: weir_export::Error,
    },
    #[error(transparent)]
    Output(#[from] crate::arguments::InvalidOutput),
    #[error("--sort: {0}")]
    Order(#[from] weir_query::InvalidOrder),
    #[error(
        "{0}: with --by or --every this file would have the view of the whole run instead of records; write the view \
         with -o table:PATH, and records to an IPFIX file or a collector, or run weir read with --by later"
    )]
    ViewOfProbe(String),
    #[error("{0}: fields= selects the fields of records; this view has those of --by, and its sums")]
    FieldsOfView(String),
    #[error("--groups limits the groups of --by and the intervals of --every; add one of these, or leave out --groups")]
    GroupsWithoutView,
    #[error("--by: the view would have two columns with the name {0}")]
    ColumnTwice(&'static str),
    #[error("{0}: no program reads this pipe")]
    NoPipeReader(String),

    // The system.
    #[error("{size}: the flow cache can grow to {memory}, more than the system provides; choose fewer flows (--flows)")]
    FlowCacheMemory { size: String, memory: String },
    #[error(transparent)]
    Memory(#[from] Box<FlowCacheTooLarge>),
    #[error(
        "--lock-memory: {error}; the limit of locked memory is {limit} (ulimit -l): raise it, or give the probe the \
         capability CAP_IPC_LOCK (under systemd: LimitMEMLOCK=infinity, or AmbientCapabilities=CAP_IPC_LOCK)"
    )]
    LockMemory { limit: String, error: io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("--listen: {error}{}", control_advice(.error))]
    Control {
        #[from]
        error: weir_control::Error,
    },
    #[error("{error}{}", control_advice(.error))]
    Remote { error: weir_control::Error },
    #[error("--to https:// needs --ca FILE, with the certificates that the probe's one is signed by; http:// does not")]
    BypassCertificates,
    #[error("--more needs --action shunt")]
    BypassMore,
    #[error("--signature needs --on alert or --on drop: other events have no signature")]
    BypassSignature,
    #[error("{probe}: {reason}")]
    BypassRefused { probe: String, reason: String },
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("--user {0}: no such user; name another one, or root to keep all privileges (not recommended)")]
    UnknownUser(String),
    #[error("--user {0}: only root can become another user; leave out --user")]
    NotRoot(String),
    #[error("--user {user}: cannot {action}: {error}")]
    Privileges { user: String, action: &'static str, error: io::Error },

    // `weir probe`.
    #[error(
        "--wait: {0} cannot attach to an interface again; af_packet: can, with one queue, without fanout and \
         timestamps=hardware, and af_xdp: with one queue (queues=0), if it may lock enough memory (ulimit -l)"
    )]
    CannotWait(String),
    #[error(
        "{sink}: the probe runs as {user} (--user), who cannot create files in this folder: {error}; give that user the \
         folder (chown {user}), or name another one"
    )]
    RotatedFiles { sink: String, user: String, error: io::Error },
    #[error(
        "{output}: the probe runs as {user} (--user), who cannot write into this pipe, so the probe could not open it \
         again for another reader: {error}; give that user the pipe (chown {user})"
    )]
    FifoOfUser { output: String, user: String, error: io::Error },
    #[error("--autotune: {0} can be read only once; use a file or a live interface")]
    AutotuneOfPipe(String),
    #[error("autotune: {candidate}: {error}")]
    AutotuneTrial { candidate: String, error: Box<Error> },
    #[error("stopped during --autotune: nothing was metered")]
    AutotuneStopped,
    #[error("{path}: {problem}")]
    ReloadIncomplete { path: String, problem: IncompleteConfig },
    #[error("these options differ from those at the start, and a change needs a restart: {0}")]
    ReloadNeedsRestart(String),
    #[error("the reload panicked, please report this")]
    ReloadPanicked,
    #[error(
        "{0}: top, uniflow, domain and where of an open sink cannot change; restart the probe, or name another file"
    )]
    ReloadChangesOpenFile(String),
    #[error(
        "{sink}: a running probe opens files only in the directories of the outputs that it was started with \
         ({permitted}); restart the probe, or name a file there"
    )]
    ReloadOutsideSandbox { sink: String, permitted: String },
    #[error(
        "the queues of {sinks} sinks ({closing} are being closed) can grow to {needed}{views}, and {room} is left for them \
         beside the flow caches ({limit}); name fewer sinks, change them in several reloads, or raise the limit and \
         restart the probe"
    )]
    ReloadSinks { sinks: usize, closing: usize, needed: String, views: String, room: String, limit: String },

    #[error("{0}{advice}", advice = recorder_advice(.0))]
    Recorder(#[from] weir_recorder::Error),
    #[error(
        "--where: this expression reads the packets more than once, which is impossible with {0}; save it to a file"
    )]
    PacketsOfPipe(String),

    // `weir doctor`, `weir plan`, `weir bench`, `weir tcp`.
    #[error("no interface '{name}'; there is {existing}")]
    UnknownInterface { name: String, existing: String },
    #[error("{error}{}", sysroot_advice(.error))]
    Sysroot {
        #[from]
        error: weir_host::Error,
    },
    #[error("--bench {path}: {problem}")]
    BenchReport { path: String, problem: BenchReportProblem },
    #[error(transparent)]
    Bench(weir_bench::Error),
    #[error("the --soak run lost packets, or its memory grew")]
    Soak,
    #[error(transparent)]
    Tcp(#[from] TcpError),
}

/// Flow caches that do not fit into the memory that is free.
#[derive(Debug, thiserror::Error)]
#[error(
    "{size}: {caches} can grow to {needed}, and everything else to {reserve}, of which the queues of sinks take \
     {queues}{views}; these do not fit into the memory that is free: {free} ({limit}); {advice}"
)]
pub struct FlowCacheTooLarge {
    pub size: String,
    pub caches: String,
    pub needed: String,
    pub reserve: String,
    pub queues: String,
    pub views: String,
    pub free: String,
    pub limit: String,
    pub advice: String,
}

#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    #[error("--explain {key} reads the capture more than once, which is impossible with {pipe}; save it to a file")]
    ExplainOfPipe { key: String, pipe: String },
    #[error("--explain {key}: {error}{}{candidates}", connection_advice(.error))]
    Connection { key: String, error: weir_tcp_report::LookupError, candidates: String },
    #[error("--engine gpu: no GPU can be used: {0}; --engine auto continues without a GPU")]
    Engine(weir_tcp_batch::DeviceError),
    #[error("{}", memory_with_advice(.0))]
    Memory(weir_tcp_report::MemoryError),
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigProblem {
    #[error("unknown option{}", .0.as_ref().map_or_else(String::new, |name| format!("; did you mean {name}?")))]
    Unknown(Option<String>),
    #[error("use true or false")]
    NotBoolean,
    #[error("{0} is not allowed here; use text or a number")]
    WrongType(&'static str),
    #[error("{0}")]
    Value(String),
}

/// Why a configuration file seems to be incomplete when it is read again.
#[derive(Debug, thiserror::Error)]
pub enum IncompleteConfig {
    #[error("the file is empty")]
    Empty,
    #[error("the last line does not end with a line feed, so the file may be incomplete; end it with one")]
    LastLine,
    #[error(
        "the file is the beginning of the configuration in effect, so it may be incomplete; if you removed its last \
         lines, write a comment there"
    )]
    Beginning,
    #[error("the file names no output, so it may be incomplete; for the table, write output = [\"table:-\"]")]
    NoOutput,
}

/// What is wrong with a file that should be a report of `weir bench --json`.
#[derive(Debug, thiserror::Error)]
pub enum BenchReportProblem {
    #[error(transparent)]
    Read(io::Error),
    #[error("not JSON: {0}")]
    Syntax(serde_json::Error),
    #[error("made with --quick, whose figures mean nothing; run weir bench without it")]
    Quick,
    #[error("no figures of the tables mix or flows; run weir bench mix --json FILE")]
    NoFigures,
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("synth:{spec}: {error}")]
    Traffic { spec: String, error: weir_capture::SettingsError },
    #[error("{}", capture_with_advice(.0))]
    Capture(weir_capture::Error),
}

impl Error {
    /// Fails if there are any problems.
    ///
    /// # Errors
    /// All of them.
    pub fn of(problems: Vec<Self>) -> Result<(), Self> {
        match <[Self; 1]>::try_from(problems) {
            Ok([problem]) => Err(problem),
            Err(problems) if problems.is_empty() => Ok(()),
            Err(problems) => Err(Self::Problems(problems)),
        }
    }

    /// A file that cannot be opened, read or written.
    pub fn file(path: impl Into<PathBuf>, error: io::Error) -> Self {
        Self::File { path: path.into().display().to_string(), error }
    }
}

/// The source of an interface that the user named with or without a scheme.
pub fn live_source(name: &str) -> String {
    if name.contains(':') { name.into() } else { format!("af_packet:{name}") }
}

/// The first line of each error: other lines show the place in an expression. An error that several
/// outputs have is named once.
fn lines(errors: &[Error]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for error in errors {
        let line = match error {
            // Each of these has its lines.
            Error::Sources(_) | Error::Problems(_) | Error::Enrichment(_) => error.to_string(),
            _ => error.to_string().lines().next().unwrap_or_default().into(),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// What the user can do about a file that cannot be written; begins with punctuation.
pub fn advice(error: &io::Error) -> &'static str {
    if let Some(libc::EMFILE) = error.raw_os_error() {
        return "; ulimit -n shows the limit of open files";
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; ls -l shows who may use it",
        io::ErrorKind::NotFound => "; does its directory exist?",
        io::ErrorKind::AlreadyExists => "; name a directory, not a file",
        io::ErrorKind::IsADirectory => "; name a file in it",
        io::ErrorKind::FileTooLarge if error.raw_os_error().is_some() => "; ulimit -f shows the limit of file sizes",
        io::ErrorKind::StorageFull => "; free some space, or write elsewhere",
        _ => "",
    }
}

/// What the user can do so that the HTTP interface starts; begins with punctuation.
fn control_advice(error: &weir_control::Error) -> &'static str {
    match error {
        weir_control::Error::Listen { error, .. } => match error.kind() {
            io::ErrorKind::AddrInUse => "; another program listens there (ss -ltnp shows it): name another port",
            io::ErrorKind::AddrNotAvailable => "; this machine has no such address (ip address shows all)",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need root: name a higher one",
            _ => "",
        },
        weir_control::Error::NotLoopback(_) => {
            ": give --tls-cert, --tls-key and --token-file, or listen on 127.0.0.1 (docs/control.md)"
        }
        weir_control::Error::File { error, .. } => input_advice(error),
        weir_control::Error::TokenOwner { .. } => {
            "; give it to the user that starts weir (chown), and make a new token"
        }
        weir_control::Error::TokenReadable { .. } => "; chmod 600 it, and make a new token",
        weir_control::Error::InvalidToken { .. } => "; make one with: openssl rand -hex 32",
        weir_control::Error::Pem { .. } | weir_control::Error::Tls(_) | weir_control::Error::Client(_) => "",
    }
}

/// What the user can do about a folder that cannot be recorded into.
fn recorder_advice(error: &weir_recorder::Error) -> &'static str {
    match error {
        weir_recorder::Error::Folder { error, .. } => advice(error),
        weir_recorder::Error::InUse(_) => "; name another folder, or end that program",
        weir_recorder::Error::Setting { .. } => "",
    }
}

/// What the user can do about a file that cannot be read.
fn input_advice(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound { "; is the name right?" } else { advice(error) }
}

fn enrichment_with_advice(errors: &[weir_enrich::Error]) -> String {
    let line = |error: &weir_enrich::Error| {
        let advice = match &error.problem {
            Problem::Io(error) => input_advice(error),
            Problem::NotAFile => "; write its content to a file first",
            Problem::Changed => "; try again, and replace files with mv, so that they are never incomplete",
            Problem::NoPlaces(_) => "; use a database of countries, cities or autonomous systems",
            Problem::Database(_) => "; name a file that ends with .mmdb, and compare its size with the original",
            _ => "",
        };
        format!("{error}{advice}")
    };
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn sysroot_advice(error: &weir_host::Error) -> &'static str {
    match error {
        weir_host::Error::Unreadable(_, error) => input_advice(error),
        weir_host::Error::NotARecording(_) => "",
    }
}

/// What the user can do about a sink that cannot be opened or written.
pub fn sink_advice(error: &weir_export::Error) -> &'static str {
    match error {
        weir_export::Error::Io { sink, error } if sink.contains("://") => match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => "; ip route get ADDRESS shows the route",
            _ => "",
        },
        weir_export::Error::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
            "; ls -l shows who may use it. A file that existed when root started the probe keeps its owner: give it to \
             --user with chown, or restart the probe"
        }
        weir_export::Error::Io { error, .. } => advice(error),
        weir_export::Error::Spec(_) => "",
        weir_export::Error::File { problem, .. } => match problem {
            UnusableFile::SymbolicLink => "; name the file itself, or - for standard output",
            UnusableFile::NoReader => "",
            UnusableFile::NotEmpty => "; name another file, or replace its content with --overwrite",
            UnusableFile::Locked => "; give each a file of its own",
            UnusableFile::OtherContent => "; name another file, or move this one away",
        },
    }
}

/// The problems of a rules file: lines, counted from 1, and texts.
#[derive(Debug)]
pub struct RulesProblems(pub Vec<(usize, String)>);

fn rules_problems(path: &std::path::Path, problems: &RulesProblems) -> String {
    let line = |(line, problem): &(usize, String)| format!("{}: line {line}: {problem}", path.display());
    problems.0.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn capture_with_advice(error: &weir_capture::Error) -> String {
    match error {
        weir_capture::Error::Io { path, error: cause } => {
            if cause.kind() != io::ErrorKind::NotFound {
                return format!("{error}{}", input_advice(cause));
            }
            let name = path.to_string_lossy();
            if weir_capture::is_interface(&name) {
                return format!("{name}: there is no such file; to capture from the interface: -i af_packet:{name}");
            }
            if name == "any" {
                return "any: there is no such file, and no interface that stands for all; name the interfaces, joined \
                        with +: -i af_packet:eth0+eth1"
                    .into();
            }
            match name.split_once(':') {
                Some((scheme, _)) if !scheme.contains(['/', '.']) => {
                    let live = weir_capture::LIVE_SCHEMES.join(", ");
                    format!("{name}: there is no such file, and no source {scheme}:; use {live} or synth:")
                }
                _ => format!("{error}{}", input_advice(cause)),
            }
        }
        _ => error.to_string(),
    }
}

fn memory_with_advice(error: &weir_tcp_report::MemoryError) -> String {
    match error {
        weir_tcp_report::MemoryError::TooManyConnections { .. } => {
            format!("--connections: {error}; choose fewer, split the capture, or filter fewer hosts or ports")
        }
        weir_tcp_report::MemoryError::TooLittle { .. } => error.to_string(),
    }
}

fn connection_advice(error: &weir_tcp_report::LookupError) -> &'static str {
    match error {
        weir_tcp_report::LookupError::NotFound => "; weir tcp FILE --top 0 lists all",
        weir_tcp_report::LookupError::Ambiguous { .. } => "; choose one by its number:",
        _ => "",
    }
}
