//! Options of `weir store`.

use clap::Args;
use std::path::PathBuf;
use weir_store::Keep;

/// List what a store has, and look after it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Store {
    /// The folder of the store, as in -o parquet:FOLDER
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,

    /// Read all files whole, and list those that are damaged
    #[arg(long)]
    pub verify: bool,

    /// Make the files of each hour few, sorted by source address, then start: smaller, and faster to search. A probe does
    /// so by itself, a quarter of an hour after the last file of the hour
    #[arg(long)]
    pub compact: bool,

    /// Remove flows of an hour this long after it, and the oldest files if there are more octets: 30d, 200G, or 30d,200G
    #[arg(long, value_name = "LIMITS")]
    pub keep: Option<Keep>,

    /// Print no table; the default of --log-level is warn
    #[arg(short, long)]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  weir read capture.pcap -o parquet:flows   write flows into a store
  weir store flows                          list its days: hours, files, records and size
  weir store flows --verify                 read every file
  weir store flows --compact --keep 30d     sort its hours, and remove what is older than 30 days

Exit codes:
  0  success
  1  usage error, the folder cannot be read, or with --compact and --keep another program writes to it
  2  a file is damaged, of another program, or cannot be sorted or removed; standard error names it";
