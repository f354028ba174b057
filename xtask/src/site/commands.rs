//! What the program itself prints: the help of its commands, and its topics.

use super::{Error, file_error, remove, run};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Texts by their names.
pub(super) type Texts = BTreeMap<String, String>;

/// The help of every command (`weir-read`), and every topic (`views`). The manual pages, written into a folder, say
/// which there are.
pub(super) fn read(weir: &Path, folder: &Path) -> Result<(Texts, Texts), Error> {
    remove(folder)?;
    run(Command::new(weir).arg("man").arg("-o").arg(folder.join("man1")))?;
    let mut commands = Texts::new();
    for page in names(&folder.join("man1"))? {
        let words: Vec<&str> = page.split('-').skip(1).collect();
        let help = run(Command::new(weir).args(&words).arg("--help"))?;
        commands.insert(page, help);
    }
    let mut topics = Texts::new();
    for page in names(&folder.join("man7"))? {
        let topic = page.trim_start_matches("weir-").to_owned();
        let text = run(Command::new(weir).args(["help", &topic]))?;
        topics.insert(topic, text);
    }
    Ok((commands, topics))
}

/// The names of manual pages, without their section.
fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(|error| file_error(folder, error))?;
    let name = |entry: fs::DirEntry| entry.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok(entries.filter_map(Result::ok).filter_map(name).collect())
}
