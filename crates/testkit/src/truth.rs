//! What other tools counted in captures.
