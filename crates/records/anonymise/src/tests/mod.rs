//! Tests of the public interface.

mod crypto_pan;
mod records;

use weir_anonymise::Key;

/// The key of the sample of the authors' program.
pub const SAMPLE_KEY: [u8; 32] = [
    21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131, 121, 121, 101, 39, 98,
    87, 76, 45, 42, 132, 34, 2,
];

pub fn sample_key() -> Key {
    SAMPLE_KEY.into()
}
