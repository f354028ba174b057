//! The site: the pages of the repository as a book of mdBook, and as text.
//!
//! Input: docs/README.md, which lists the pages in their order, the pages, and a built `weir`, which prints the help of
//! its commands. Output: a folder of HTML without requests to other hosts, in which every link resolves, and a folder of
//! text. The pages are taken as they are: the folders of the book are those of the repository, so that relative links
//! hold. It does not fetch mdBook (`scripts/site`).

mod commands;
mod index;
mod links;
mod source;

use std::path::Path;
use std::process::Command;
use std::{fs, io};

pub use index::violations;

/// Settings of mdBook. What is left out of the pages: a page of all pages, and that of a server's error 404, which
/// names its files from the root of a server.
const SETTINGS: &str = include_str!("book.toml");

const STYLE: &str = include_str!("weir.css");

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {error}")]
    File { path: String, error: io::Error },
    #[error("{program} failed: {message}")]
    Program { program: String, message: String },
    #[error("{}", .0.join("\n"))]
    Violations(Vec<String>),
}

/// Builds `site` (HTML) and `text` below a folder.
///
/// # Errors
/// A page that links to what is not in the site, a program that fails, a file that cannot be written, or a dead link.
pub fn build(root: &Path, weir: &Path, mdbook: &Path, target: &Path) -> Result<(), Error> {
    let book = target.join("site-source");
    remove(&book)?;
    let violations = violations(root);
    if !violations.is_empty() {
        return Err(Error::Violations(violations));
    }
    let (commands, topics) = commands::read(weir, &target.join("site-manual"))?;
    source::write_book(root, &book.join("src"), &commands)?;
    write(&book.join("book.toml"), SETTINGS)?;
    write(&book.join("weir.css"), STYLE)?;
    let (html, text) = (target.join("site"), target.join("site-text"));
    remove(&html)?;
    remove(&text)?;
    run(Command::new(mdbook).arg("build").arg(&book).arg("--dest-dir").arg(&html))?;
    for (topic, page) in topics {
        write(&text.join(topic + ".txt"), &page)?;
    }
    let violations = links::violations(&html)?;
    if violations.is_empty() { Ok(()) } else { Err(Error::Violations(violations)) }
}

/// The output of a program that has to succeed.
fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().display().to_string();
    let failed = |message| Error::Program { program: program.clone(), message };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().into()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

/// Writes a file and the folders above it.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    let folder = path.parent().expect("a file has a folder");
    fs::create_dir_all(folder).and_then(|()| fs::write(path, text)).map_err(|error| file_error(path, error))
}

/// Removes a folder, if it is there.
fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(folder, error)),
        _ => Ok(()),
    }
}

fn file_error(path: &Path, error: io::Error) -> Error {
    Error::File { path: path.display().to_string(), error }
}
