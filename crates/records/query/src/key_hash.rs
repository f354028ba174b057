//! The hash of the key of a group.

use ahash::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::OnceLock;
use weir_fields::FieldValue;

/// How this process hashes the values of views. Estimates of the same flows are the same then, and it is not known outside which
/// values collide.
pub(crate) fn random_state() -> RandomState {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    STATE.get_or_init(RandomState::new).clone()
}

/// Equal keys have equal hashes.
pub(crate) fn hash_key(hasher: &RandomState, key: &[FieldValue<'_>]) -> u64 {
    let mut hasher = hasher.build_hasher();
    for value in key {
        match *value {
            FieldValue::Text(ref text) => text.hash(&mut hasher),
            FieldValue::NotApplicable | FieldValue::NoValue => hasher.write_u8(0),
            FieldValue::Unsigned(number) | FieldValue::Implied(number) | FieldValue::Time(number) => {
                hasher.write_u64(number);
            }
            FieldValue::Float(number) => hasher.write_u64(number.to_bits()),
            FieldValue::Ip(IpAddr::V4(address)) => hasher.write_u32(address.to_bits()),
            FieldValue::Ip(IpAddr::V6(address)) => hasher.write_u128(address.to_bits()),
            FieldValue::Mac(octets) => octets.hash(&mut hasher),
            FieldValue::Code(number, _) | FieldValue::Protocol(number) => hasher.write_u8(number),
            FieldValue::TcpFlags(bits) => hasher.write_u16(bits),
            FieldValue::Approximate(set) => hasher.write_u16(set.0),
            FieldValue::Degraded(set) => hasher.write_u8(set.0),
            FieldValue::Notes(set) => hasher.write_u8(set.0),
            FieldValue::CommunityId(id) => id.hash(&mut hasher),
        }
    }
    hasher.finish()
}
