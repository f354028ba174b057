//! The pages of the site, in their order: those of docs/README.md, in its groups, behind the README of the repository.

use crate::tidy::linked_files;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The index of the pages.
const INDEX: &str = "docs/README.md";

/// The first page.
pub(super) const FIRST: &str = "README.md";

/// A group of pages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub title: String,
    pub pages: Vec<Page>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub title: String,
    /// From the root of the repository.
    pub path: PathBuf,
    /// If it is the README of a folder of pages: these.
    pub below: Vec<Page>,
}

/// The groups of the index; the first one has the README and the index itself.
pub(super) fn groups(root: &Path) -> Vec<Group> {
    let index = read(root, Path::new(INDEX));
    let mut groups =
        vec![Group { title: String::new(), pages: vec![page(root, FIRST.into()), page(root, INDEX.into())] }];
    for line in index.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            groups.push(Group { title: title.into(), pages: vec![] });
        }
        let group = groups.last_mut().expect("there is a group");
        group.pages.extend(row(line).map(|target| page(root, beside(Path::new(INDEX), &target))));
    }
    groups
}

/// All files that the site has, from the root of the repository: pages, and what they link to.
pub(super) fn files(root: &Path) -> BTreeSet<PathBuf> {
    let mut files = pages(&groups(root)).into_iter().map(Path::to_owned).collect::<BTreeSet<_>>();
    for page in files.clone() {
        let linked = linked_files(&read(root, &page)).into_iter().map(|(_, file)| beside(&page, &file));
        files.extend(linked.filter(|file| root.join(file).is_file()));
    }
    files
}

/// Links of pages of the site to pages that it does not have.
pub fn violations(root: &Path) -> Vec<String> {
    let groups = groups(root);
    let pages = pages(&groups);
    let mut wrong = Vec::new();
    for page in &pages {
        for (line, file) in linked_files(&read(root, page)) {
            let target = beside(page, &file);
            let is_page = target.extension().is_some_and(|extension| extension == "md");
            if is_page && !pages.contains(&target.as_path()) {
                wrong.push(format!("{}:{line}: {INDEX} does not list {}", page.display(), target.display()));
            } else if root.join(&target).is_dir() {
                wrong.push(format!("{}:{line}: a site has no folders: link to a file of {file}", page.display()));
            }
        }
    }
    wrong
}

fn pages(groups: &[Group]) -> BTreeSet<&Path> {
    let all = groups.iter().flat_map(|group| &group.pages);
    all.flat_map(|page| [page].into_iter().chain(&page.below)).map(|page| page.path.as_path()).collect()
}

/// The target of the link that a row of a table begins with.
fn row(line: &str) -> Option<String> {
    let (_, rest) = line.strip_prefix("| [")?.split_once("](")?;
    rest.split_once(')').map(|(target, _)| target.into())
}

fn page(root: &Path, path: PathBuf) -> Page {
    let text = read(root, &path);
    let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default().into();
    let is_index = path.ends_with("README.md") && path != Path::new(INDEX) && path != Path::new(FIRST);
    let rows = text.lines().filter(|_| is_index).filter_map(row).filter(|target| target.ends_with(".md"));
    let below = rows.map(|target| page(root, beside(&path, &target))).collect();
    Page { title, path, below }
}

/// The path of what a page links to.
pub fn beside(page: &Path, target: &str) -> PathBuf {
    let mut path: PathBuf = page.parent().map(Path::to_owned).unwrap_or_default();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

fn read(root: &Path, page: &Path) -> String {
    fs::read_to_string(root.join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_has_all_pages_and_begins_with_the_readme() {
        let root = crate::root();
        let groups = groups(&root);
        assert_eq!(groups[0].pages[0].title, "Weir");
        let pages = pages(&groups);
        for page in ["docs/install.md", "docs/tcp.md", "docs/decisions/0005-the-table.md", "CHANGELOG.md"] {
            assert!(pages.contains(Path::new(page)), "{page}: {pages:?}");
        }
        let files = files(&root);
        assert!(files.contains(Path::new("docs/screenshots/traffic.png")) && files.contains(Path::new("LICENSE-MIT")));
        assert_eq!(violations(&root), Vec::<String>::new());
    }

    #[test]
    fn links_are_found_from_their_page() {
        assert_eq!(beside(Path::new("docs/a.md"), "../SECURITY.md"), Path::new("SECURITY.md"));
        assert_eq!(beside(Path::new("docs/a.md"), "decisions/README.md"), Path::new("docs/decisions/README.md"));
        assert_eq!(row("| [a.md](a.md) | what [b](b.md) has |").as_deref(), Some("a.md"));
        assert_eq!(row("| `a` | [b](b.md) |"), None);
    }
}
