//! Lines of text, for protocols that have them.

use memchr::memchr;

/// Lines that are read.
pub(crate) const MAX_LINES: usize = 128;
/// Lines of fields that are read for a packet. A line takes 10 to 20 ns.
pub(crate) const MAX_FIELD_LINES: usize = 512;

/// The whole lines at the start of octets, without their ends and the white space before them.
pub(crate) fn lines(octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = octets;
    let line = move || {
        let (line, after) = rest.split_at(memchr(b'\n', rest)?);
        rest = &after[1..];
        Some(line.trim_ascii_end())
    };
    std::iter::from_fn(line).take(MAX_LINES)
}

/// Whether octets have no control characters but those that lines have.
pub(crate) fn is_text(octets: &[u8]) -> bool {
    // Without an early end, so that many octets are tested at once.
    let is_other = |octet: u8| octet.is_ascii_control() & (octet != b'\r') & (octet != b'\n') & (octet != b'\t');
    !octets.iter().fold(false, |has_other, octet| has_other | is_other(*octet))
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

/// How far the fields of a head were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fields {
    /// To the end of the head. What follows is here.
    Whole(usize),
    /// To the end of the octets. With more octets, reading goes on here.
    Partial(usize),
    /// To the limit of lines.
    Limited,
}

/// Calls a function with the name and value of each whole field from a line on (RFC 9112 section 5, RFC 3261
/// section 7.3). Those that are folded over several lines are left out. `lines_left`: lines that may be read.
pub(crate) fn fields<'a>(
    octets: &'a [u8],
    start: usize,
    lines_left: &mut usize,
    mut read: impl FnMut(&'a [u8], &'a [u8]),
) -> Fields {
    // The start of the line of the field that is not yet read, or of the line that is not whole.
    let mut field_at = start;
    let (mut field, mut rest): (&[u8], _) = (b"", octets.get(start..).unwrap_or_default());
    loop {
        // White space at its start makes a line a part of the field before it (RFC 9112 section 5.2).
        let Some(first) = rest.first() else { return Fields::Partial(field_at) };
        let is_continuation = b" \t".contains(first);
        if let Some(colon) = memchr(b':', field).filter(|_| !is_continuation) {
            read(field[..colon].trim_ascii(), field[colon + 1..].trim_ascii());
        }
        field_at = octets.len() - rest.len();
        let Some(end) = memchr(b'\n', rest) else { return Fields::Partial(field_at) };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        rest = &rest[end + 1..];
        if line.is_empty() {
            return Fields::Whole(octets.len() - rest.len());
        }
        let Some(left) = lines_left.checked_sub(1) else { return Fields::Limited };
        *lines_left = left;
        field = if is_continuation { b"" } else { line };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first letters of the names of the fields that are read, and how far.
    fn names(octets: &[u8], start: usize, lines: usize) -> (String, Fields) {
        let (mut names, mut lines_left) = (String::new(), lines);
        let read = fields(octets, start, &mut lines_left, |name, _| names.push_str(str::from_utf8(name).unwrap()));
        (names, read)
    }

    #[test]
    fn fields_are_read_when_the_next_line_begins_and_folded_ones_never() {
        let head = b"A: 1\r\nB:2 \r\n C: 3\r\n\tx\r\nno colon\r\nD :4\nE: 5\r\n\r\nbody";
        let end = head.len() - 4;
        for (octets, expected, read) in [
            (&head[..], "ADE", Fields::Whole(end)),
            (&head[..end], "ADE", Fields::Whole(end)),
            (&head[..end - 1], "ADE", Fields::Partial(end - 2)),
            (&head[..end - 2], "AD", Fields::Partial(end - 8)),
            (b" A: 1\r\nB: 2\r\n\r\n", "B", Fields::Whole(15)),
            (b"A: 1\r\n \r\nB: 2\r\n\r\n", "B", Fields::Whole(17)),
            (b"", "", Fields::Partial(0)),
        ] {
            assert_eq!(names(octets, 0, 100), (expected.into(), read), "{:?}", String::from_utf8_lossy(octets));
        }
        fields(head, 0, &mut 100, |name, value| assert!(name != b"D" || value == b"4"));
    }

    #[test]
    fn fields_that_are_read_in_parts_are_those_of_the_whole() {
        let head = b"A: 1\r\nB:2 \r\n C: 3\r\n\tx\r\nno colon\r\nD :4\nE: 5\r\n\r\nbody";
        for first in 0..head.len() {
            for second in first..head.len() {
                let (mut all, mut read) = (String::new(), Fields::Partial(0));
                for end in [first, second, head.len()] {
                    let Fields::Partial(start) = read else { break };
                    let (names, next) = names(&head[..end], start, 100);
                    all += &names;
                    read = next;
                }
                assert_eq!((&*all, read), ("ADE", Fields::Whole(head.len() - 4)), "{first} {second}");
            }
        }
    }

    #[test]
    fn lines_of_fields_are_limited() {
        let head = b"A:\nB:\nC:\n\n";
        assert_eq!(names(head, 0, 3), ("ABC".into(), Fields::Whole(10)));
        assert_eq!(names(head, 0, 2), ("AB".into(), Fields::Limited));
    }
}
