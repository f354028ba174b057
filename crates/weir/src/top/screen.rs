//! The terminal: another screen while this lives, and as it was afterwards.

use crate::console::style;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color as CellColor, Modifier, Style};
use std::io::{self, BufWriter, Stdout, Write};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_top::State;

/// Largest screen that is drawn.
const MAX_SIZE: (u16, u16) = (1000, 400);

/// A thread has panicked, and the terminal is as it was.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// The terminal, in raw mode.
pub struct Screen {
    output: BufWriter<Stdout>,
    /// What the terminal shows.
    shown: Buffer,
    has_colours: bool,
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Back to the screen and the mode from before. A terminal that is gone needs nothing.
fn restore() {
    let _ = execute!(io::stdout(), SetAttribute(Attribute::Reset), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

impl Screen {
    /// Takes the terminal. A panic, also of another thread, gives it back before its message.
    pub fn open() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        enable_raw_mode()?;
        let screen = Self {
            output: BufWriter::new(io::stdout()),
            shown: Buffer::default(),
            has_colours: style::is_on(&io::stdout()),
        };
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                HAS_PANICKED.store(true, Relaxed);
                restore();
                before(info);
            }));
        });
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Draws what has changed.
    pub fn draw(&mut self, state: &mut State) -> io::Result<()> {
        if HAS_PANICKED.load(Relaxed) {
            return Err(io::Error::other("a thread has panicked"));
        }
        let (columns, rows) = size()?;
        let area = Rect::new(0, 0, columns.min(MAX_SIZE.0), rows.min(MAX_SIZE.1));
        let mut next = Buffer::empty(area);
        if !area.is_empty() {
            state.draw(&mut next);
        }
        if self.shown.area != area {
            queue!(self.output, Clear(ClearType::All))?;
            self.shown = Buffer::empty(area);
        }
        let mut style = Style::reset();
        queue!(self.output, SetAttribute(Attribute::Reset))?;
        for (column, row, cell) in self.shown.diff(&next) {
            queue!(self.output, MoveTo(column, row))?;
            if cell.style() != style {
                style = cell.style();
                set_style(&mut self.output, style, self.has_colours)?;
            }
            queue!(self.output, Print(cell.symbol()))?;
        }
        queue!(self.output, SetAttribute(Attribute::Reset))?;
        self.shown = next;
        self.output.flush()
    }
}

fn set_style(output: &mut impl Write, style: Style, has_colours: bool) -> io::Result<()> {
    queue!(output, SetAttribute(Attribute::Reset))?;
    for (modifier, attribute) in [(Modifier::BOLD, Attribute::Bold), (Modifier::REVERSED, Attribute::Reverse)] {
        if style.add_modifier.contains(modifier) {
            queue!(output, SetAttribute(attribute))?;
        }
    }
    if has_colours && style.fg == Some(CellColor::Red) {
        queue!(output, SetForegroundColor(Color::Red))?;
    }
    Ok(())
}
