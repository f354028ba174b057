//! `PATH?NAME=VALUE&...`: the path of a file and its settings.

/// Splits the path of a file from its settings, which are the text behind the last `?` if it begins
/// with `NAME=`. Any other question mark is part of the path.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_lowercase());
    match text.rsplit_once('?') {
        Some((path, settings)) if settings.split_once('=').is_some_and(|(name, _)| is_name(name)) => (path, settings),
        _ => (text, ""),
    }
}

/// The path in the specification of a sink, without settings; `None` for a collector.
pub fn path_of_file(spec: &str) -> Option<&str> {
    let (_, text) = spec.split_once(':')?;
    (!text.starts_with("//")).then(|| split(text).0)
}

/// Whether a path is standard output, which may be compressed: `-`, `-.gz` and `-.zst`.
pub fn is_standard_output(path: &str) -> bool {
    matches!(path, "-" | "-.gz" | "-.zst")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_last_question_mark() {
        assert_eq!(split("a.csv?fields=src_ip"), ("a.csv", "fields=src_ip"));
        assert_eq!(split("-?fields=a&x=y"), ("-", "fields=a&x=y"));
        assert_eq!(split("why?.csv"), ("why?.csv", ""));
        assert_eq!(split("why?.csv?fields=*"), ("why?.csv", "fields=*"));
        assert_eq!(split("a?=b"), ("a?=b", ""));
        assert_eq!(path_of_file("csv:a.csv?fields=src_ip"), Some("a.csv"));
        assert_eq!(path_of_file("ipfix+udp://host?fields=a"), None);
    }
}
