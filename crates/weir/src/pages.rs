//! `weir fields`, `weir completions`, `weir man`: texts that are generated from the program itself.

use crate::arguments::{Arguments, Completions, Fields, FieldsFormat, Man};
use crate::console::{self, print, print_styled, style};
use crate::error::Error;
use crate::help;
use crate::run_status::RunStatus;
use clap::builder::{PossibleValuesParser, Resettable};
use clap::{Arg, CommandFactory};
use weir_fields::{Element, NTOP_ENTERPRISE, WEIR_ENTERPRISE};
use weir_text::columns::{Column, fit, rows};

pub fn fields(fields: &Fields) -> Result<RunStatus, Error> {
    let columns = &fields.fields.0;
    let mut listed: Vec<ListedField> = columns.iter().map(|column| ListedField::of_column(column)).collect();
    if columns.len() == weir_fields::columns().len() {
        listed.extend(weir_fields::words().map(|(word, meaning)| ListedField::of_word(&word, meaning)));
    }
    Ok(match fields.format {
        FieldsFormat::Text => print_styled(&fields_text(&listed, console::terminal_columns()), style::table),
        FieldsFormat::Json => print(format!("{:#}\n", fields_json(&listed)).as_bytes()),
        FieldsFormat::Csv => print(&fields_csv(&listed)),
        FieldsFormat::Sql => print(fields_sql(columns).as_bytes()),
    })
}

/// A field, or a word of expressions that is no column.
struct ListedField {
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    /// Empty of a word.
    profiles: String,
    elements: Vec<&'static Element>,
    is_column: bool,
    meaning: &'static str,
}

impl ListedField {
    fn of_column(column: &weir_fields::Column) -> Self {
        let mut elements: Vec<&Element> = weir_fields::elements_of(column).collect();
        // One element may occur with several lengths.
        elements.dedup_by_key(|element| (element.number, element.name));
        Self {
            name: column.name,
            kind: column.kind.name(),
            unit: column.unit,
            profiles: weir_fields::profiles(column),
            elements,
            is_column: true,
            meaning: column.description,
        }
    }

    fn of_word(word: &weir_fields::Field, meaning: &'static str) -> Self {
        let (kind, unit, profiles) = ("", "", String::new());
        Self { name: word.name, kind, unit, profiles, elements: vec![], is_column: false, meaning }
    }
}

/// The enterprise number of an element, which is that of the forward direction.
fn enterprise(element: &Element) -> u32 {
    match (element.weir, element.ntop_reverse) {
        (Some(_), _) => WEIR_ENTERPRISE,
        (None, Some(_)) => NTOP_ENTERPRISE,
        (None, None) => 0,
    }
}

fn fields_json(fields: &[ListedField]) -> serde_json::Value {
    let element = |element: &&Element| serde_json::json!({"name": element.name, "enterprise": enterprise(element), "number": element.number});
    let object = |field: &ListedField| {
        let profiles: Vec<&str> = field.profiles.split(',').filter(|name| !name.is_empty()).collect();
        serde_json::json!({
            "name": field.name,
            "type": field.is_column.then_some(field.kind),
            "unit": field.unit,
            "profiles": profiles,
            "elements": field.elements.iter().map(element).collect::<Vec<_>>(),
            "column": field.is_column,
            "meaning": field.meaning,
        })
    };
    fields.iter().map(object).collect()
}

fn fields_csv(fields: &[ListedField]) -> Vec<u8> {
    const WRITES: &str = "writing to memory cannot fail";
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(["name", "type", "unit", "profiles", "elements", "column", "meaning"]).expect(WRITES);
    for field in fields {
        let element = |element: &&Element| match enterprise(element) {
            0 => format!("{} ({})", element.name, element.number),
            enterprise => format!("{} ({enterprise}/{})", element.name, element.number),
        };
        let elements = field.elements.iter().map(element).collect::<Vec<_>>().join(", ");
        let column = if field.is_column { "1" } else { "0" };
        csv.write_record([field.name, field.kind, field.unit, &field.profiles, &elements, column, field.meaning])
            .expect(WRITES);
    }
    csv.into_inner().expect(WRITES)
}

/// A table of DuckDB into which CSV and JSON with these fields can be read.
fn fields_sql(columns: &[&weir_fields::Column]) -> String {
    use weir_fields::ColumnKind::{Integer, Number, Time};
    let line = |(at, column): (usize, &&weir_fields::Column)| {
        let of_type = match column.kind {
            Time => "TIMESTAMPTZ",
            Integer => "UBIGINT",
            Number => "DOUBLE",
            _ => "VARCHAR",
        };
        let comma = if at + 1 < columns.len() { "," } else { "" };
        let unit = if column.unit.is_empty() { String::new() } else { format!(" [{}]", column.unit) };
        format!("    {} {of_type}{comma} -- {}{unit}\n", column.name, column.description)
    };
    format!("CREATE TABLE flows (\n{});\n", columns.iter().enumerate().map(line).collect::<String>())
}

/// A line for each field. On a narrow terminal its meaning is below it.
fn fields_text(fields: &[ListedField], terminal_columns: Option<usize>) -> String {
    /// The meaning has at least this width beside the other columns.
    const MEANING: usize = 40;
    const INDENT: usize = 4;
    let column = |heading, cell: fn(&ListedField) -> String| Column::new(heading, false, fields.iter().map(cell));
    let mut columns = vec![
        column("field", |field| field.name.into()),
        column("type", |field| field.kind.into()).optional(1),
        column("unit", |field| field.unit.into()).optional(2),
        column("profiles", |field| field.profiles.clone()).optional(3),
    ];
    let left_out = fit(&mut columns, terminal_columns);
    let width = columns.iter().map(|column| column.width() + 1).sum::<usize>();
    let is_below = terminal_columns.is_some_and(|limit| limit < width + MEANING);
    let indent = if is_below { INDENT } else { width };
    let limit = terminal_columns.map_or(usize::MAX, |limit| limit.saturating_sub(indent));
    let of_words =
        |field: &ListedField| if field.is_column { "" } else { "A word of --where, --by, --sort, --fields: " };
    let meaning = |field: &ListedField| format!("{}{}", of_words(field), field.meaning);
    let meanings = std::iter::once("meaning".to_owned()).chain(fields.iter().map(meaning));
    let mut text = String::new();
    for (row, meaning) in rows(&columns, columns.len(), None).iter().zip(meanings) {
        let mut before = row.trim_end();
        if is_below {
            text += &format!("{before}\n");
            before = "";
        }
        for part in weir_text::wrap(&meaning, limit) {
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
    clap_complete::generate(completions.shell, &mut with_values(Arguments::command()), "weir", &mut text);
    Ok(print(&text))
}

/// The command with the values that shells complete: names of fields, profiles, sinks, sources, topics. It parses no
/// command line: these options have more values.
fn with_values(command: clap::Command) -> clap::Command {
    let names = || weir_fields::columns().iter().map(|column| column.name);
    let words = || names().chain(weir_fields::words().map(|(word, _)| word.name));
    let fields: Vec<&str> = weir_fields::profile_names().chain(words()).collect();
    let (grouped, sorted): (Vec<&str>, Vec<&str>) = (words().collect(), names().chain(["flows", "duration"]).collect());
    let counted: Vec<&str> = ["hosts", "ports"].into_iter().chain(names()).collect();
    // With what stands between the scheme and the place: `parquet:`, `ipfix+udp://`.
    let scheme = |kind: &weir_export::SinkKind| {
        let end = kind.place.find(|letter| !":/".contains(letter)).unwrap_or_default();
        of_all_time(format!("{}{}", kind.scheme, &kind.place[..end]))
    };
    let sinks: Vec<&str> = weir_export::SINK_KINDS.iter().map(scheme).chain(["balance:", "failover:"]).collect();
    let topics: Vec<&str> =
        help::topics().map(|topic| of_all_time(topic.name.into_owned())).chain(["topics"]).collect();
    let with_values = |option: Arg| match (option.get_id().as_str(), option.get_value_names()) {
        ("fields", _) => option.value_parser(PossibleValuesParser::new(&fields)),
        ("by", _) => option.value_parser(PossibleValuesParser::new(&grouped)),
        ("order", _) => option.value_parser(PossibleValuesParser::new(&sorted)),
        ("counts", _) => option.value_parser(PossibleValuesParser::new(&counted)),
        ("outputs", _) => option.value_parser(PossibleValuesParser::new(&sinks)),
        ("words", _) => option.value_parser(PossibleValuesParser::new(&topics)),
        ("inputs", Some([name])) if name == "SOURCE" => option.value_parser(PossibleValuesParser::new(sources())),
        // Files are completed where no source begins so.
        ("target", _) => option.value_parser(PossibleValuesParser::new(sources())),
        ("sort", Some([name])) if name == "NAME" => option.value_parser(PossibleValuesParser::new(&sorted)),
        _ => option,
    };
    // Shells show the help of options in a line.
    let shorter = |option: Arg| {
        let help = option.get_help().map(|help| help::first_sentence(&help.to_string()));
        with_values(option.help(help.unwrap_or_default()))
    };
    command.mut_subcommands(|command| command.mut_args(shorter))
}

/// The parser of the command line keeps only such names. The program ends soon.
fn of_all_time(name: String) -> &'static str {
    name.leak()
}

/// Live sources on the interfaces of this machine, and generated traffic.
fn sources() -> Vec<&'static str> {
    let names = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let interfaces = names.filter_map(|entry| Some(format!("af_packet:{}", entry.file_name().to_str()?)));
    let mut sources: Vec<&str> = interfaces.map(of_all_time).collect();
    sources.sort();
    sources.extend(["af_packet:", "af_xdp:", "synth:mix", "synth:velan", "synth:lossy", "synth:apps"]);
    sources
}

/// Prints a manual page, or writes all pages into directories.
pub fn man(man: &Man) -> Result<RunStatus, Error> {
    let Some(directory) = &man.output else { return manual_page(man.name.as_deref()).map(|page| print(&page)) };
    let mut command = Arguments::command();
    // Sets the full names of the subcommands.
    command.build();
    // `man` looks for a section in the folder with its number.
    let of_topics = match directory.file_name() {
        Some(name) if name == "man1" => directory.with_file_name("man7"),
        _ => directory.clone(),
    };
    let written =
        std::fs::create_dir_all(directory).and_then(|()| std::fs::create_dir_all(&of_topics)).and_then(|()| {
            let below = || command.get_subcommands();
            let mut all =
                [&command].into_iter().chain(below()).chain(below().flat_map(|command| command.get_subcommands()));
            all.try_for_each(|command| {
                let name = command.get_display_name().unwrap_or(command.get_name());
                std::fs::write(directory.join(format!("{name}.1")), page(command))
            })?;
            help::topics().try_for_each(|topic| {
                std::fs::write(of_topics.join(format!("weir-{}.7", topic.name)), help::manual_page(&topic))
            })
        });
    match written {
        Ok(()) => Ok(RunStatus::Success),
        Err(error) => Err(Error::file(directory, error)),
    }
}

/// The page of a topic or a command; without a name, that of weir.
fn manual_page(name: Option<&str>) -> Result<Vec<u8>, Error> {
    if let Some(topic) = name.and_then(help::find) {
        return Ok(help::manual_page(&topic).into_bytes());
    }
    let words: Vec<String> = name.into_iter().map(Into::into).collect();
    Ok(page(&help::named(&words).ok_or_else(|| help::unknown("man", &words))?))
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
