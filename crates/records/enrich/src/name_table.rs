//! A table from texts to sets of tag lists: one text that holds all names, and a hash table of
//! their positions. A name takes its octets, and 14 to 28 more.

use crate::tag_set::TagSet;
use ahash::RandomState;
use hashbrown::HashTable;

#[derive(Debug, Default)]
pub(crate) struct NameTable {
    /// All names, one behind the other.
    text: String,
    names: HashTable<Name>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    /// Position in the text.
    start: u32,
    tags: TagSet,
    octets: u8,
}

impl Name {
    fn text(self, all: &str) -> &str {
        &all[self.start as usize..][..usize::from(self.octets)]
    }
}

/// The names together have more than 4 GiB, or one has more than 255 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl NameTable {
    /// Adds the tags of a name.
    pub fn add(&mut self, name: &str, tags: TagSet) -> Result<(), TooLong> {
        let Self { text, names, hasher } = self;
        let hash = hasher.hash_one(name);
        if let Some(known) = names.find_mut(hash, |known| known.text(text) == name) {
            known.tags |= tags;
            return Ok(());
        }
        let entry = Name {
            start: text.len().try_into().map_err(|_| TooLong)?,
            octets: name.len().try_into().map_err(|_| TooLong)?,
            tags,
        };
        text.push_str(name);
        names.insert_unique(hash, entry, |known| hasher.hash_one(known.text(text)));
        Ok(())
    }

    /// The tags of a name.
    pub fn get(&self, name: &str) -> TagSet {
        let known = self.names.find(self.hasher.hash_one(name), |known| known.text(&self.text) == name);
        known.map_or(TagSet::default(), |known| known.tags)
    }

    /// The tags of a domain name and of all domains that it is in.
    pub fn get_suffixes(&self, name: &str) -> TagSet {
        if self.is_empty() {
            return TagSet::default();
        }
        let labels = name.match_indices('.').map(|(at, _)| at + 1);
        std::iter::once(0).chain(labels).map(|start| self.get(&name[start..])).fold(TagSet::default(), |a, b| a | b)
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Gives back memory that more names would have needed.
    pub fn shrink(&mut self) {
        let Self { text, names, hasher } = self;
        text.shrink_to_fit();
        names.shrink_to_fit(|known| hasher.hash_one(known.text(text)));
    }

    pub fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.names.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_tags_of_all_its_suffixes() {
        let [a, b, c] = [0, 1, 2].map(TagSet::of_list);
        let mut table = NameTable::default();
        assert_eq!(table.get_suffixes("example"), TagSet::default());
        for (name, tags) in [("example", a), ("b.example", b), ("www.b.example", c), ("b.example", c)] {
            table.add(name, tags).unwrap();
        }
        table.shrink();
        for (name, tags) in [
            ("example", a),
            ("x.y.example", a),
            ("b.example", a | b | c),
            ("ab.example", a),
            ("x.b.example", a | b | c),
            ("anexample", TagSet::default()),
            ("", TagSet::default()),
        ] {
            assert_eq!(table.get_suffixes(name), tags, "{name}");
        }
        assert_eq!(table.add(&"a".repeat(256), a), Err(TooLong));
        assert!(table.memory_bytes() > 0);
    }
}
