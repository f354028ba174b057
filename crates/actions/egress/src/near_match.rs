//! The word that a user may have meant.

/// The known word that is most similar to what the user wrote, if one is similar.
pub(crate) fn nearest(written: &str, known: &[&'static str]) -> Option<&'static str> {
    let written = written.to_ascii_lowercase();
    let similarity = |word: &str| (strsim::normalized_damerau_levenshtein(word, &written) * 100.0) as u32;
    let (best, word) = known.iter().map(|word| (similarity(word), *word)).max()?;
    (best > 60).then_some(word)
}
