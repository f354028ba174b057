//! Errors: tables and views, and packets in place of records.

/// Tables and views, and packets in place of records.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("{0}: name a file, or - for standard output")]
    NoTablePath(String),
    #[error("{0}: a table or a view is written once, at the end; remove rotate=")]
    RotatedTable(String),
    #[error(
        "{0}: with --by or --every this file would have the view of the whole run instead of records; write the view \
         with -o table:PATH, and records to an IPFIX file or a collector, or run weir read with --by later"
    )]
    ViewOfProbe(String),
    #[error("{0}: with --by or --every it has a view of the whole run, which cannot be one of the sinks of failover:")]
    ViewOfFailover(String),
    #[error("{0}: fields= selects the fields of records; this view has those of --by, and its sums")]
    FieldsOfView(String),
    #[error("--groups limits the groups of --by and the intervals of --every; add one of these, or leave out --groups")]
    GroupsWithoutView,
    #[error(
        "--sum adds up numbers of the groups of --by and the intervals of --every; add one of these, or leave out --sum"
    )]
    SumsWithoutView,
    #[error("--by: the view would have two columns with the name {0}")]
    ColumnTwice(String),
    #[error(
        "{output}: a file of packet records has packets, not flow records; leave out {option}, and give it when the file is read"
    )]
    PacketsOutput { output: String, option: &'static str },
    #[error("--transactions: {0} leaves nothing to record; leave out one of the two")]
    TransactionsNeed(&'static str),
    #[error("--anonymise: {0} passes on whole packets, which cannot be anonymised; leave out one of the two")]
    AnonymisedPackets(&'static str),
    #[error("--anonymise: the key was not read, so no output is opened; please report this")]
    NoAnonymisationKey,
    #[error(
        "--html writes the page, and this weir was built without it: build it with Node 20 or newer by make web, then build \
         weir again"
    )]
    NoPage,
    #[error("--html: the temporary folder (TMPDIR) cannot be used: {0}")]
    PageFolder(weir_export::InvalidSpec),
    #[error("packets: needs the name of a file, or - for standard output (packets:FILE)")]
    NoPacketsPath,
    #[error("a capture is not readable on a terminal; name a file, or pipe it to a program")]
    CaptureToTerminal,
    #[error("{0}: no program reads this pipe")]
    NoPipeReader(String),
    #[error("{output} is also the input {input} and would overwrite it; name another file")]
    OverwritesInput { output: String, input: String },
    #[error(
        "-o {output} and -o {other}: the collector would get each record twice; name it once, or give each a where= or \
         fields= of its own"
    )]
    SameCollector { output: String, other: String },
    #[error("{output} and {other} would be mixed in one file or folder; give each one of its own")]
    SharedOutput { output: String, other: String },
}
