//! Counts with their names.

/// All counts but 0, each with its name.
pub(crate) fn nonzero<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let texts = counts.filter(|&(_, count)| count > 0).map(|(name, count)| format!("{count} {name}"));
    texts.collect::<Vec<_>>().join(", ")
}
