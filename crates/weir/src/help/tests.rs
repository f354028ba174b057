//! The commands and configurations of the pages are valid: the command line parser takes every one of them.

use super::{find, named, topics};
use crate::arguments::{Arguments, Command};
use clap::Parser;
use clap::error::ErrorKind;

/// Pages with commands that are no topics.
const OTHERS: [(&str, &str); 3] = [
    ("README", include_str!("../../../../README.md")),
    ("CONTRIBUTING", include_str!("../../../../CONTRIBUTING.md")),
    ("deploy", include_str!("../../../../deploy/README.md")),
];

/// Names and texts of all pages.
fn pages() -> impl Iterator<Item = (String, &'static str)> {
    let others = OTHERS.iter().map(|&(name, text)| (name.to_owned(), text));
    topics().map(|topic| (topic.name.to_string(), topic.text)).chain(others)
}

/// The blocks of code of a page, with their language.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let (mut blocks, mut open): (Vec<(&str, String)>, bool) = (vec![], false);
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            open = !open;
            blocks.extend(open.then(|| (language, String::new())));
        } else if open {
            let (_, block) = blocks.last_mut().expect("a block is open");
            *block += &format!("{}\n", line.trim_start());
        }
    }
    blocks
}

/// The commands behind the prompts of a block, and the words of each. What runs behind `|`, `;` or `&&` is a command of its
/// own, and the file of a redirection is taken for one.
fn commands(block: &str) -> Vec<Vec<String>> {
    let mut found = vec![];
    let mut rest = block;
    while let Some((line, behind)) = rest.split_once('\n') {
        rest = behind;
        if let Some(start) = line.strip_prefix("$ ").or(line.strip_prefix("# ")) {
            let start = block.len() - behind.len() - 1 - start.len();
            rest = &block[start + shell_line(&block[start..], &mut found)..];
        }
    }
    found
}

/// Reads a line of a shell, which a backslash and quotes continue. Returns its length.
fn shell_line(text: &str, found: &mut Vec<Vec<String>>) -> usize {
    let (mut words, mut word, mut quote) = (vec![], None::<String>, None);
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None | Some('"'), '\\') => {
                let next = letters.next().map(|(_, letter)| letter).filter(|letter| *letter != '\n');
                next.into_iter().for_each(|next| word.get_or_insert_default().push(next));
            }
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '\n') => {
                end = at + 1;
                break;
            }
            (None, '#') if word.is_none() => {
                end = at + text[at..].find('\n').map_or(text.len() - at, |length| length + 1);
                break;
            }
            (None, ' ') => words.extend(word.take()),
            (None, '|' | ';' | '&' | '(' | ')' | '<' | '>') => {
                words.extend(word.take().filter(|word| word != "2"));
                found.push(std::mem::take(&mut words));
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    found.push(words);
    end
}

/// The command line of weir in a command, without what stands in front of it.
fn of_weir(words: &[String]) -> Option<&[String]> {
    let is_in_front = |word: &&String| ["sudo", "nohup", "time"].contains(&word.as_str()) || word.contains('=');
    let words = &words[words.iter().take_while(is_in_front).count()..];
    words.first().is_some_and(|word| word == "weir").then_some(words)
}

/// An example of an error on a page.
const WRONG: &str = "byts > 1M";

/// What is wrong with a command line.
fn problem(words: &[String]) -> Option<String> {
    match Arguments::try_parse_from(words) {
        Ok(Arguments { command: Some(Command::Help(help)), .. }) => {
            let is_known = match &help.words[..] {
                [word] => word == "topics" || find(word).is_some() || named(&help.words).is_some(),
                words => named(words).is_some(),
            };
            // Capital letters stand for a word.
            (!is_known && !help.words.iter().any(|word| word.contains(char::is_uppercase)))
                .then(|| "there is no such topic".into())
        }
        Ok(_) => None,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => None,
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn every_command_of_the_pages_is_valid() {
    let (mut count, mut wrong) = (0, vec![]);
    for (page, text) in pages() {
        for (_, block) in blocks(text) {
            for words in commands(&block) {
                let Some(words) = of_weir(&words).filter(|words| !words.iter().any(|word| word.contains(WRONG))) else {
                    continue;
                };
                count += 1;
                wrong.extend(problem(words).map(|problem| format!("{page}: {}\n{problem}", words.join(" "))));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 250, "{count} commands");
}

/// Pages whose configurations are those of a probe.
const CONFIGURED: [&str; 5] = ["quick-start", "operating", "probe-guide", "control", "install"];

#[test]
fn every_configuration_of_the_pages_is_valid() {
    let mut count = 0;
    for (page, text) in pages().filter(|(page, _)| CONFIGURED.contains(&page.as_str())) {
        for (_, block) in blocks(text).into_iter().filter(|(language, _)| *language == "toml") {
            let table: toml::Table = block.parse().unwrap_or_else(|error| panic!("{page}: {block}{error}"));
            let mut words = vec!["weir".to_owned(), "probe".into()];
            for (key, value) in &table {
                let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
                words.extend(values.iter().map(|value| match value {
                    toml::Value::String(text) => format!("--{key}={text}"),
                    toml::Value::Boolean(_) => format!("--{key}"),
                    other => format!("--{key}={other}"),
                }));
            }
            assert_eq!(problem(&words), None, "{page}: {block}");
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn wrong_commands_are_found() {
    let found = |block: &str| -> Vec<Vec<String>> {
        let all = commands(block);
        all.iter().filter_map(|words| of_weir(words)).map(<[String]>::to_vec).collect()
    };
    let block = "$ sudo weir read 'a b' \\\n--by host   # a | weir comment\noutput weir\n# x | weir view - 2>log && A=b weir top\n";
    let expected = [vec!["weir", "read", "a b", "--by", "host"], vec!["weir", "view", "-"], vec!["weir", "top"]];
    assert_eq!(found(block), expected);
    assert_eq!(found("$ weir query \"select '#'\nfrom flows\"\n"), [["weir", "query", "select '#'\nfrom flows"]]);
    for wrong in ["$ weir read a --nonsense\n", "$ weir nonsense\n", "$ weir help nonsense\n"] {
        assert!(problem(&found(wrong)[0]).is_some(), "{wrong}");
    }
}
