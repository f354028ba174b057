//! The results of recent addresses, so that those of a busy host are computed once.
//!
//! A place for each hash: a new address takes the place of the one that was there.

/// Places. A sink has 130 kB of them.
const PLACES: usize = 1 << 12;

/// Which function a result is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Of IPv4 addresses.
    Ipv4,
    /// Of IPv6 addresses.
    Ipv6,
    /// Of MAC addresses.
    Mac,
}

/// A bounded memory of results.
pub struct Cache(Vec<Option<Result>>);

#[derive(Clone, Copy)]
struct Result {
    of: (Function, u128),
    value: u128,
}

impl Cache {
    /// An empty one.
    pub fn new() -> Self {
        Self(vec![None; PLACES])
    }

    /// The result for a value, which is computed unless it is known.
    pub fn get(&mut self, function: Function, from: u128, compute: impl FnOnce() -> u128) -> u128 {
        let folded = (from >> 64) as u64 ^ from as u64 ^ function as u64;
        let place = (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2())) as usize;
        let of = (function, from);
        match &mut self.0[place] {
            Some(known) if known.of == of => known.value,
            other => {
                let value = compute();
                *other = Some(Result { of, value });
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_that_of_its_function_and_value_whatever_was_in_its_place() {
        let mut cache = Cache::new();
        let mut computed = 0;
        for round in 0..2_u128 {
            for value in (0..20_000).chain([u128::MAX, u128::MAX << 64]) {
                for function in [Function::Ipv4, Function::Ipv6, Function::Mac] {
                    let expected = value.wrapping_mul(3) ^ function as u128;
                    let result = cache.get(function, value, || {
                        computed += 1;
                        expected
                    });
                    assert_eq!(result, expected, "{function:?} {value} {round}");
                }
            }
        }
        assert_eq!(cache.get(Function::Ipv4, 5, || 7), cache.get(Function::Ipv4, 5, || 8));
        assert!(computed > 60_000, "{computed}");
    }
}
