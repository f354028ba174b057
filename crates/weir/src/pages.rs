//! `weir fields`, `weir completions`, `weir man`: texts that are generated from the program itself.

use crate::arguments::{Arguments, Completions, Fields, Man};
use crate::console::{self, print, print_styled, style};
use crate::error::Error;
use crate::run_status::RunStatus;
use clap::CommandFactory;
use clap::builder::Resettable;
use weir_text::columns::{Column, fit, rows};

pub fn fields(fields: &Fields) -> Result<RunStatus, Error> {
    let text = fields_text(&fields.fields.0, console::terminal_columns());
    Ok(print_styled(&text, style::table))
}

/// A line for each field. On a narrow terminal its meaning is below it.
fn fields_text(fields: &[&weir_fields::Column], terminal_columns: Option<usize>) -> String {
    /// The meaning has at least this width beside the other columns.
    const MEANING: usize = 40;
    const INDENT: usize = 4;
    let column = |heading, cell: fn(&weir_fields::Column) -> String| {
        Column::new(heading, false, fields.iter().map(|field| cell(field)))
    };
    let mut columns = vec![
        column("field", |field| field.name.into()),
        column("type", |field| field.kind.name().into()).optional(1),
        column("unit", |field| field.unit.into()).optional(2),
        column("profiles", weir_fields::profiles).optional(3),
    ];
    let left_out = fit(&mut columns, terminal_columns);
    let width = columns.iter().map(|column| column.width() + 1).sum::<usize>();
    let is_below = terminal_columns.is_some_and(|limit| limit < width + MEANING);
    let indent = if is_below { INDENT } else { width };
    let limit = terminal_columns.map_or(usize::MAX, |limit| limit.saturating_sub(indent));
    let meanings = std::iter::once("meaning").chain(fields.iter().map(|field| field.description));
    let mut text = String::new();
    for (row, meaning) in rows(&columns, columns.len(), None).iter().zip(meanings) {
        let mut before = row.trim_end();
        if is_below {
            text += &format!("{before}\n");
            before = "";
        }
        for part in weir_text::wrap(meaning, limit) {
            text += &format!("{before:indent$}{part}\n");
            before = "";
        }
    }
    if left_out.is_empty() {
        return text;
    }
    let lines = weir_text::wrap(&left_out, terminal_columns.unwrap_or(usize::MAX));
    lines.into_iter().fold(text, |text, line| text + &line + "\n")
}

pub fn completions(completions: &Completions) -> Result<RunStatus, Error> {
    let mut text = Vec::new();
    clap_complete::generate(completions.shell, &mut Arguments::command(), "weir", &mut text);
    Ok(print(&text))
}

/// Prints the manual page of weir, or writes all pages into a directory.
pub fn man(man: &Man) -> Result<RunStatus, Error> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    // Sets the full names of the subcommands.
    command.build();
    let Some(directory) = &man.output else { return Ok(print(&page(&command))) };
    let written = std::fs::create_dir_all(directory).and_then(|()| {
        let below = || command.get_subcommands();
        let mut all =
            [&command].into_iter().chain(below()).chain(below().flat_map(|command| command.get_subcommands()));
        all.try_for_each(|command| {
            let name = command.get_display_name().unwrap_or(command.get_name());
            std::fs::write(directory.join(format!("{name}.1")), page(command))
        })
    });
    match written {
        Ok(()) => Ok(RunStatus::Success),
        Err(error) => Err(Error::file(directory, error)),
    }
}

/// One page. The examples are added here because `clap_mangen` would fill their lines.
fn page(command: &clap::Command) -> Vec<u8> {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let command = command.clone().after_help(Resettable::Reset);
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).expect("writing to memory cannot fail");
    page.extend(b".SH EXAMPLES\n.nf\n");
    for line in examples.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // Without it, a dot or an apostrophe at the start of a line would be a roff request.
        page.extend(format!("\\&{line}\n").into_bytes());
    }
    page.extend(b".fi\n");
    page
}
