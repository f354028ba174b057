//! Lines of text, for protocols that have them.

use memchr::memchr;

/// Lines that are read.
pub(crate) const MAX_LINES: usize = 128;

/// The whole lines at the start of octets, without their ends and the white space before them.
pub(crate) fn lines(octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    octets
        .split_inclusive(|&octet| octet == b'\n')
        .take(MAX_LINES)
        .filter_map(|line| line.strip_suffix(b"\n"))
        .map(<[u8]>::trim_ascii_end)
}

/// Whether octets have no control characters but those that lines have.
pub(crate) fn is_text(octets: &[u8]) -> bool {
    !octets.iter().any(|octet| octet.is_ascii_control() && !b"\r\n\t".contains(octet))
}

/// What follows a word, without white space. The case does not matter.
pub(crate) fn after_word<'a>(line: &'a [u8], word: &str) -> Option<&'a [u8]> {
    let (start, rest) = line.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word.as_bytes()).then(|| rest.trim_ascii())
}

/// The first word of a line.
pub(crate) fn first_word(line: &[u8]) -> &[u8] {
    line.split(|&octet| octet == b' ').next().unwrap_or_default()
}

/// Whether octets contain a word in any case.
pub(crate) fn contains(octets: &[u8], word: &str) -> bool {
    octets.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
}

/// Where an octet is that is in no quoted string. In quoted strings a backslash takes the next octet as
/// it is (RFC 5321 section 4.1.2, RFC 3261 section 25.1).
pub(crate) fn position_unquoted(octets: &[u8], wanted: u8) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    octets.iter().position(|&octet| {
        match octet {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => return !is_quoted && octet == wanted,
        }
        false
    })
}

/// Calls a function with the name and value of each whole field (RFC 9112 section 5, RFC 3261 section 7.3).
/// Those that are folded over several lines are left out. `Some`: what follows the head. `None`: its end is
/// not among the octets.
pub(crate) fn fields<'a>(mut octets: &'a [u8], mut read: impl FnMut(&'a [u8], &'a [u8])) -> Option<&'a [u8]> {
    let mut field: &[u8] = b"";
    loop {
        // White space at its start makes a line a part of the field before it (RFC 9112 section 5.2).
        let is_continuation = b" \t".contains(octets.first()?);
        if let Some(colon) = memchr(b':', field).filter(|_| !is_continuation) {
            read(field[..colon].trim_ascii(), field[colon + 1..].trim_ascii());
        }
        let end = memchr(b'\n', octets)?;
        let line = octets[..end].strip_suffix(b"\r").unwrap_or(&octets[..end]);
        octets = &octets[end + 1..];
        if line.is_empty() {
            return Some(octets);
        }
        field = if is_continuation { b"" } else { line };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_when_the_next_line_begins_and_folded_ones_never() {
        let head = b"A: 1\r\nB:2 \r\n C: 3\r\n\tx\r\nno colon\r\nD :4\nE: 5\r\n\r\nbody";
        let end = head.len() - 4;
        for (octets, names, rest) in [
            (&head[..], "ADE", Some(&b"body"[..])),
            (&head[..end], "ADE", Some(b"")),
            (&head[..end - 1], "ADE", None),
            (&head[..end - 2], "AD", None),
            (b" A: 1\r\nB: 2\r\n\r\n", "B", Some(b"")),
            (b"A: 1\r\n \r\nB: 2\r\n\r\n", "B", Some(b"")),
            (b"", "", None),
        ] {
            let mut read = String::new();
            assert_eq!(fields(octets, |name, _| read.push_str(str::from_utf8(name).unwrap())), rest);
            assert_eq!(read, names, "{:?}", String::from_utf8_lossy(octets));
        }
        fields(head, |name, value| assert!(name != b"D" || value == b"4"));
    }
}
