//! A screen of live figures in the terminal: what `weir top` shows, and what its keys do.
//!
//! In: keys, and the answers of the HTTP interface of a probe or of `weir view` (`weir help control`), as JSON. Out:
//! the next questions for that interface, as paths, and the screen, as a buffer of cells or as text. It opens nothing,
//! reads no clock and starts no thread: the command asks, and passes on what was answered.
//!
//! No text of an answer reaches the screen with characters that act on a terminal: they are written `\xNN`.
#![forbid(unsafe_code)]

mod about;
mod answer;
mod columns;
mod detail;
mod editor;
mod key;
mod line;
mod list;
mod names;
mod page;
mod question;
mod row;
mod scan;
mod screen;
mod state;
mod status;
mod table;

pub use about::{About, Mode};
pub use answer::Reply;
pub use columns::{RATE, sort_names};
pub use key::{Action, Key};
pub use list::List;
pub use names::{add_names, names_paths};
pub use question::{Question, Questions, Topic};
pub use screen::{MIN_COLUMNS, MIN_ROWS};
pub use state::{Settings, State};

#[cfg(test)]
mod tests;
