//! Options of `weir fields`, `weir completions` and `weir man`.

use clap::Args;
use std::path::PathBuf;

/// List all fields of a flow record
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weir fields | less")]
pub struct Fields {}

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir completions bash > /etc/bash_completion.d/weir
  weir completions zsh > /usr/share/zsh/site-functions/_weir
  weir completions fish > ~/.config/fish/completions/weir.fish")]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Print or install the manual pages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir man | man -l -                       show the manual page of weir
  weir man -o /usr/local/share/man/man1     write the pages of all commands")]
pub struct Man {
    /// Write the pages of all commands into this directory [default: print the page of weir]
    #[arg(short = 'o', long = "output", value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,
}
