//! Lists of numbers in the notation of the kernel: `0-3,8`.

/// A CPU number must be below this limit, so that a damaged file cannot exhaust the memory.
const LIMIT: u32 = 65_536;

/// Parses a list, also an empty one, into ascending numbers; `None` if the text is not a list.
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last >= LIMIT {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// Formats numbers as a list: `0-3,8`.
pub fn list(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|a, b| a + 1 == *b);
    let parts = runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_formatted_as_they_are_parsed() {
        for (text, numbers) in [("", &[][..]), ("0", &[0]), ("0-3", &[0, 1, 2, 3]), ("0-1,8,10-11", &[0, 1, 8, 10, 11])]
        {
            assert_eq!(parse_list(text).as_deref(), Some(numbers), "{text}");
            assert_eq!(list(numbers), text);
        }
        assert_eq!(parse_list("3,1-2\n"), Some(vec![1, 2, 3]));
    }

    #[test]
    fn garbage_is_rejected_and_allocates_no_memory() {
        for text in ["x", "1-", "-1", "3-1", "0-4294967295", "99999999999", "1 2", "0x3"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
    }
}
