//! The one binary. It reads what the user wrote, opens sources and sinks, lets a pipeline run, and says
//! what came of it: in words on the screen, in the ledger, and in the exit code.
//!
//! Exit codes: 0 done; 1 wrong use, or input that cannot be read at all (nothing was metered); 2 finished,
//! but some input was malformed or some record was not delivered.
//! Always true: standard output carries what was asked for and nothing else; a reader that goes away
//! (`| head`) ends the run quietly.
#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod doctor;
mod files;
mod findings;
mod outputs;
mod pages;
mod plan;
mod probe;
mod progress;
mod protocols;
mod read;
mod summary;
mod synth;
mod table;
mod tcp;

use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use weir_text::units;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Everything was metered and delivered.
    Done,
    /// Finished, but some input was malformed or something was not delivered.
    Flawed,
}

/// Why nothing was done: a line or more for the user.
#[derive(Debug)]
struct Refusal(String);

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // In colours it repeats what was written as it is.
            let is_plain = std::env::args_os().all(|argument| {
                let argument = argument.to_string_lossy();
                harmless(&argument) == argument
            });
            // Nobody is left to tell if this fails.
            let _ = if is_plain { error.print() } else { tell(&error.render().to_string()) };
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    let result = match arguments.command {
        Some(Command::Read(read)) => read::run(&read),
        Some(Command::Probe(probe)) => probe::run(&probe),
        Some(Command::Tcp(tcp)) => tcp::run(&tcp),
        Some(Command::Synth(synth)) => synth::run(&synth),
        Some(Command::Bench(bench)) => bench::run(&bench),
        Some(Command::Doctor(doctor)) => doctor::run(&doctor),
        Some(Command::Plan(plan)) => plan::run(&plan),
        Some(Command::Fields(fields)) => pages::fields(&fields),
        Some(Command::Completions(completions)) => pages::completions(&completions),
        Some(Command::Man(man)) => pages::man(&man),
        None => Ok(print(Arguments::command().render_help().to_string().as_bytes())),
    };
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Flawed) => ExitCode::from(2),
        Err(Refusal(why)) => {
            why.lines().for_each(say);
            ExitCode::from(1)
        }
    }
}

/// Says something on standard error, on one line. If nobody can hear it, the exit code still tells.
fn say(line: &str) {
    let _ = tell(&format!("weir: {}\n", line.replace('\n', "\u{fffd}")));
}

/// The same with a text of several lines.
fn tell(text: &str) -> io::Result<()> {
    io::stderr().write_all(harmless(text).as_bytes())
}

/// A text that drives no terminal, whatever names are in it: control characters but ends of lines are replaced.
fn harmless(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter }).collect()
}

/// Writes a whole text to standard output. A reader that had enough is no flaw.
fn print(text: &[u8]) -> Outcome {
    print_by(|output| output.write_all(text))
}

/// The same of what is written piece by piece.
fn print_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Outcome {
    let mut output = BufWriter::new(io::stdout().lock());
    match write(&mut output).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("standard output: {error}{}", files::advice(&error)));
            Outcome::Flawed
        }
        _ => Outcome::Done,
    }
}
