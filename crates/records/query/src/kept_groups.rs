//! The groups of a view with intervals that have rows of their own. The others share a row in each interval.
//!
//! Invariant: the number of rows is at most that of the intervals, times that of the groups and one.

use crate::key_hash::hash_key;
use ahash::RandomState;
use hashbrown::HashTable;
use weir_fields::FieldValue;

/// Some groups, and how many others there are.
pub(crate) struct KeptGroups {
    index: HashTable<u32>,
    hasher: RandomState,
    keys: Vec<Vec<FieldValue<'static>>>,
    /// Groups that share a row, at least: further ones may not have fitted into memory.
    pub others: u64,
}

impl KeptGroups {
    /// The values of the fields of each, and the number of the others.
    pub fn new(keys: Vec<Vec<FieldValue<'static>>>, others: u64) -> Self {
        let (mut index, hasher) = (HashTable::with_capacity(keys.len()), RandomState::new());
        for (at, key) in keys.iter().enumerate() {
            let hash = hash_key(&hasher, key);
            index.insert_unique(hash, at as u32, |&at| hash_key(&hasher, &keys[at as usize]));
        }
        Self { index, hasher, keys, others }
    }

    /// Whether the group with these values of the fields has a row of its own.
    pub fn has(&self, fields: &[FieldValue<'_>]) -> bool {
        let is_equal = |&at: &u32| self.keys[at as usize].as_slice() == fields;
        self.index.find(hash_key(&self.hasher, fields), is_equal).is_some()
    }

    /// The key of the row of all others in the interval of a key. No other row has a number for the start.
    pub fn rest_key(key: &[FieldValue<'_>]) -> Vec<FieldValue<'static>> {
        let mut rest = vec![FieldValue::NotApplicable; key.len()];
        if let (Some(start), [FieldValue::Time(ns) | FieldValue::Implied(ns), ..]) = (rest.first_mut(), key) {
            *start = FieldValue::Implied(*ns);
        }
        rest
    }
}
