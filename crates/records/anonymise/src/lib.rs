//! Anonymisation: addresses, MAC addresses and names of flow records become others, by a key.
//!
//! ```text
//! KEYFILE?ipv4=24&names=drop -> AnonymisationSpec -> Key
//! flow record, Key           -> the same record of others
//! ```
//! Input: a file of a key, and flow records. Output: records in which nothing says who communicates, as
//! far as docs/anonymise.md promises it. The catalogue of fields (crate `fields`) says what becomes of each field;
//! what it does not name is left out.
//! Invariants: the same key gives the same values, in every sink and run. Two addresses have as many
//! common leading bits as before. No `Debug` and no error has a part of a key.
//! Not done here: selecting records, which is done before, and packets, which cannot be anonymised.
//!
//! Source: Xu, Fan, Ammar, Moon: *Prefix-Preserving IP Address Anonymization* (ICNP 2002); RFC 6235.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_anonymise;

mod anonymiser;
mod cache;
mod crypto_pan;
mod fact_rules;
mod key;
mod pseudonym;
mod sink;
mod spec;
#[cfg(test)]
mod tests;

pub use anonymiser::Anonymiser;
pub use crypto_pan::CryptoPan;
pub use key::{Key, KeyError};
pub use sink::AnonymisingSink;
pub use spec::{AnonymisationSpec, InvalidSpec, NameRule};
