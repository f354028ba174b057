//! Writes the folder that mdBook reads: the pages and what they link to, the help of commands, and the list of all.

use super::commands::Texts;
use super::index::{self, Page};
use super::{Error, file_error, write};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The page behind which the help of commands stands.
const REFERENCE: &str = "docs/reference.md";

/// Writes the source of the book into a folder that does not exist.
pub(super) fn write_book(root: &Path, book: &Path, commands: &Texts) -> Result<(), Error> {
    for file in index::files(root) {
        let (from, to) = (root.join(&file), book.join(&file));
        let folder = to.parent().expect("a file has a folder");
        fs::create_dir_all(folder).map_err(|error| file_error(folder, error))?;
        fs::copy(&from, &to).map_err(|error| file_error(&from, error))?;
    }
    let mut list = String::from("# Command lines\n\nWhat `weir COMMAND --help` prints.\n\n");
    for (name, help) in commands {
        let command = name.replace('-', " ");
        let _ = writeln!(list, "* [`{command}`]({name}.md)");
        write(
            &book.join(format!("commands/{name}.md")),
            &format!("# `{command}`\n\n```text\n{}\n```\n", help.trim_end()),
        )?;
    }
    write(&book.join("commands/README.md"), &list)?;
    write(&book.join("SUMMARY.md"), &summary(root, commands))
}

/// The list of the pages, as mdBook reads it.
fn summary(root: &Path, commands: &Texts) -> String {
    let mut text = String::from("# Summary\n\n");
    for group in index::groups(root) {
        if !group.title.is_empty() {
            let _ = writeln!(text, "\n# {}\n", group.title);
        }
        for page in &group.pages {
            // Pages in front of the first group have no number.
            let marker = if group.title.is_empty() { "" } else { "- " };
            let _ = writeln!(text, "{marker}{}", link(page));
            for page in &page.below {
                let _ = writeln!(text, "  - {}", link(page));
            }
            if page.path == Path::new(REFERENCE) {
                text += "- [Command lines](commands/README.md)\n";
                for name in commands.keys() {
                    let _ = writeln!(text, "  - [`{}`](commands/{name}.md)", name.replace('-', " "));
                }
            }
        }
    }
    text
}

fn link(page: &Page) -> String {
    format!("[{}]({})", page.title, page.path.display())
}
