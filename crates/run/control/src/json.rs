//! Reading JSON with errors in plain words: those of derived code name types of Rust, and it reads an
//! array as an object.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// A whole number from 0 to `MAX`.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Number<const MAX: u64>(pub u64);

impl<'de, const MAX: u64> Deserialize<'de> for Number<MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_u64(NumberVisitor)
    }
}

struct NumberVisitor<const MAX: u64>;

impl<const MAX: u64> Visitor<'_> for NumberVisitor<MAX> {
    type Value = Number<MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {MAX}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Number<MAX>, E> {
        let invalid = || E::invalid_value(Unexpected::Unsigned(number), &self);
        (number <= MAX).then_some(Number(number)).ok_or_else(invalid)
    }
}

/// Reads an object, and nothing else.
pub fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_map(ObjectVisitor(PhantomData))
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
