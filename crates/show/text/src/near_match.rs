//! The names that a user may have meant.

use std::cmp::Reverse;

/// Longer text costs no more: it may come from the network.
const MAX_CHARACTERS: usize = 64;

/// How similar a name is to what the user wrote, in thousandths, without regard to case. 0 if it is
/// not similar: more than a third of the letters differ, and the beginnings do, too.
pub fn similarity(written: &str, known: &str) -> u32 {
    let written: String = written.chars().take(MAX_CHARACTERS).flat_map(char::to_lowercase).collect();
    let known = known.to_lowercase();
    let letters = written.chars().count().max(known.chars().count()).max(1);
    let differing = strsim::osa_distance(&known, &written);
    let by_letters = if differing * 3 <= letters { 1000 - 1000 * differing / letters } else { 0 };
    let by_beginning = Some(strsim::jaro_winkler(&known, &written)).filter(|&similarity| similarity > 0.86);
    by_beginning.map_or(0, |similarity| (similarity * 1000.0) as u32).max(by_letters as u32)
}

/// The similar names, the most similar one first.
pub fn similar<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let found = known.into_iter().map(|name| (Reverse(similarity(written, name)), name));
    let mut found: Vec<_> = found.filter(|(Reverse(similarity), _)| *similarity > 0).collect();
    found.sort();
    found.dedup();
    found.into_iter().map(|(_, name)| name).collect()
}

/// The most similar name, if one is similar.
pub fn most_similar<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    similar(written, known).first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_missing_or_exchanged_letter_is_found_and_a_beginning() {
        for (written, known) in [
            ("tpc", "tcp"),
            ("idz", "ids"),
            ("af_xpd", "af_xdp"),
            ("Folder", "folder"),
            ("start", "start_time"),
            ("out", "output"),
            ("filed", "fields"),
            ("gpu", "gtpu"),
        ] {
            assert_eq!(most_similar(written, [known, "zzz"]), Some(known), "{written}");
        }
        for written in ["", "zzzzzzzzzzzz", "fast", "foo", "a"] {
            assert_eq!(similar(written, ["packets", "flows", "host", "start_time", "table"]), [""; 0], "{written}");
        }
    }

    #[test]
    fn the_most_similar_name_is_the_first() {
        assert_eq!(similar("fwd_packet", ["rev_packets", "fwd_bytes", "fwd_packets"])[0], "fwd_packets");
    }
}
