//! What the program says about itself: fields, completions, manual pages.

use crate::arguments::{Arguments, Completions, Fields, Man};
use crate::{Outcome, Refusal, print};
use clap::CommandFactory;
use clap::builder::Resettable;

/// The table of fields.
pub fn fields(_: &Fields) -> Result<Outcome, Refusal> {
    Ok(print(weir_export::fields_text().as_bytes()))
}

/// Completions for one shell.
pub fn completions(completions: &Completions) -> Result<Outcome, Refusal> {
    let mut text = Vec::new();
    clap_complete::generate(completions.shell, &mut Arguments::command(), "weir", &mut text);
    Ok(print(&text))
}

/// Manual pages: one to standard output, or all into a folder.
pub fn man(man: &Man) -> Result<Outcome, Refusal> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    // Gives the subcommands their full names.
    command.build();
    let Some(folder) = &man.output else { return Ok(print(&page(&command))) };
    let written = std::fs::create_dir_all(folder).and_then(|()| {
        let below = || command.get_subcommands();
        let mut all =
            [&command].into_iter().chain(below()).chain(below().flat_map(|command| command.get_subcommands()));
        all.try_for_each(|command| {
            let name = command.get_display_name().unwrap_or(command.get_name());
            std::fs::write(folder.join(format!("{name}.1")), page(command))
        })
    });
    match written {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => Err(Refusal(format!("{}: {error}", folder.display()))),
    }
}

/// One page; the examples keep their lines, which `clap_mangen` would fill.
fn page(command: &clap::Command) -> Vec<u8> {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let command = command.clone().after_help(Resettable::Reset);
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).expect("memory takes every octet");
    page.extend(b".SH EXAMPLES\n.nf\n");
    for line in examples.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A dot or an apostrophe in front would be a request to the formatter.
        page.extend(format!("\\&{line}\n").into_bytes());
    }
    page.extend(b".fi\n");
    page
}
