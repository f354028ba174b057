//! Domain names: the form in which they are compared.

/// Longest domain name, octets without the dot at its end (RFC 1035 section 2.3.4).
pub(crate) const MAX_OCTETS: usize = 253;
/// Longest label (RFC 1035 section 2.3.4).
const MAX_LABEL_OCTETS: usize = 63;

/// The suffix that a line of a list names: lower case, without a leading `.` or `*.` and without the
/// dot at its end. `None` if it is no domain name. A name of one label needs a leading dot, so that
/// a word is not taken for one. The last label is not a number, so that an address with a typing
/// error is not taken for a name.
pub(crate) fn suffix(line: &str) -> Option<String> {
    let without_dot = line.strip_prefix("*.").or_else(|| line.strip_prefix('.'));
    let name = normal(without_dot.unwrap_or(line))?;
    let last = name.rsplit('.').next()?;
    let is_name = without_dot.is_some() || name.contains('.');
    (is_name && !last.bytes().all(|octet| octet.is_ascii_digit())).then_some(name)
}

/// A name in lower case without the dot at its end; `None` if it is no domain name in ASCII.
pub(crate) fn normal(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        (1..=MAX_LABEL_OCTETS).contains(&label.len())
            && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_')
    };
    (name.len() <= MAX_OCTETS && name.split('.').all(is_label)).then(|| name.to_ascii_lowercase())
}

/// The host of an HTTP `Host` or `:authority` without its port.
pub(crate) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|octet| octet.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_lower_case_without_dots_around_them() {
        for (line, expected) in [
            ("Example.COM", Some("example.com")),
            ("example.com.", Some("example.com")),
            (".zip", Some("zip")),
            ("*.example.com", Some("example.com")),
            ("_dmarc.a-b.example", Some("_dmarc.a-b.example")),
            ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
            ("hello", None),
            ("10.0.0.300", None),
            ("1.2.3", None),
            ("b\u{fc}cher.example", None),
            ("a..b", None),
            ("||example.com^", None),
            ("http://example.com/", None),
            ("", None),
            (".", None),
            ("*.", None),
        ] {
            assert_eq!(suffix(line).as_deref(), expected, "{line}");
        }
        assert_eq!(suffix(&format!("{}.example", "a".repeat(64))), None);
        assert_eq!(suffix(&format!("{}example", "a.".repeat(124))), None);
        assert_eq!(
            ["a.example:8080", "a.example", "[::1]:80", "a:b"].map(without_port),
            ["a.example", "a.example", "[::1]", "a:b"]
        );
    }
}
