//! Memory of answers that are not sent: a limit for all together, and one copy for all clients.

use crate::connections::Answering;
use axum::body::Bytes;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Octets of the answers that are not sent. A longer one is sent alone.
const MAX_OCTETS: usize = 8 << 20;
/// Answers up to this length always go. Those of all connections together are 4 MiB.
const SMALL_OCTETS: usize = 64 << 10;

/// Octets of answers that may still be made.
pub struct AnswerMemory {
    /// Without token, with token.
    left: [Arc<Semaphore>; 2],
}

/// There is no memory for an answer.
#[derive(Clone, Copy, Debug)]
pub struct NoMemory;

impl Default for AnswerMemory {
    fn default() -> Self {
        Self { left: [(); 2].map(|()| Arc::new(Semaphore::new(MAX_OCTETS))) }
    }
}

impl AnswerMemory {
    /// Memory for an answer of this length.
    fn take(&self, octets: usize, has_token: bool) -> Result<Option<OwnedSemaphorePermit>, NoMemory> {
        if octets <= SMALL_OCTETS {
            return Ok(None);
        }
        let left = self.left[usize::from(has_token)].clone();
        left.try_acquire_many_owned(octets.min(MAX_OCTETS) as u32).map(Some).map_err(|_| NoMemory)
    }

    /// The octets of an answer, which are counted until they are sent.
    ///
    /// # Errors
    /// There is no memory.
    pub fn counted(&self, octets: Bytes, has_token: bool) -> Result<Bytes, NoMemory> {
        let memory = self.take(octets.len(), has_token)?;
        Ok(Bytes::from_owner(Held { octets, _held: memory }))
    }
}

/// An answer that ends when its octets are sent.
pub fn until_sent(octets: Bytes, answering: Answering) -> Bytes {
    Bytes::from_owner(Held { octets, _held: answering })
}

/// Octets, and what is held until they are sent.
struct Held<T> {
    octets: Bytes,
    _held: T,
}

impl<T> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

/// An answer that all clients share which ask for the same.
pub struct SharedAnswer<K>(Mutex<Option<Copy<K>>>);

/// The last copy, as long as a client reads it.
struct Copy<K> {
    key: K,
    made: Instant,
    octets: Weak<Bytes>,
}

struct Shared(Arc<Bytes>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<K> Default for SharedAnswer<K> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<K> SharedAnswer<K> {
    /// The last copy if it `serves`, given its key and when it was made; otherwise a new one.
    ///
    /// # Errors
    /// There is no memory for a new one.
    pub fn get(
        &self,
        memory: &AnswerMemory,
        has_token: bool,
        serves: impl FnOnce(&K, Instant) -> bool,
        make: impl FnOnce() -> (K, Vec<u8>),
    ) -> Result<Bytes, NoMemory> {
        let mut last = self.0.lock();
        let present = last.as_ref().filter(|copy| serves(&copy.key, copy.made));
        if let Some(octets) = present.and_then(|copy| copy.octets.upgrade()) {
            return Ok(Bytes::from_owner(Shared(octets)));
        }
        let made = Instant::now();
        let (key, octets) = make();
        let octets = Arc::new(memory.counted(octets.into(), has_token)?);
        *last = Some(Copy { key, made, octets: Arc::downgrade(&octets) });
        Ok(Bytes::from_owner(Shared(octets)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(memory: &AnswerMemory, octets: usize, has_token: bool) -> Option<Bytes> {
        memory.counted(vec![0; octets].into(), has_token).ok()
    }

    #[test]
    fn answers_together_have_a_limit_and_those_with_token_one_of_their_own() {
        let memory = AnswerMemory::default();
        let large = answer(&memory, 5 << 20, false);
        assert!(large.is_some() && answer(&memory, 4 << 20, false).is_none());
        assert!(answer(&memory, SMALL_OCTETS, false).is_some());
        let part = large.as_ref().map(|octets| octets.slice(7..8));
        drop(large);
        assert!(answer(&memory, 4 << 20, false).is_none(), "a part of it is not sent");
        assert!(answer(&memory, 20 << 20, true).is_some());
        drop(part);
        let alone = answer(&memory, 20 << 20, false);
        assert!(alone.is_some() && answer(&memory, SMALL_OCTETS + 1, false).is_none());
        drop(alone);
        assert!(answer(&memory, MAX_OCTETS, false).is_some());
    }

    #[test]
    fn clients_share_a_copy_as_long_as_one_reads_it() {
        let (memory, shared) = (AnswerMemory::default(), SharedAnswer::default());
        let get = |serves| shared.get(&memory, false, |_, _| serves, || ((), vec![0; 5 << 20])).ok();
        let first = get(true).unwrap();
        let second = get(true).unwrap();
        assert_eq!(first.as_ptr(), second.as_ptr());
        assert!(get(false).is_none(), "there is no memory for another copy");
        drop((first, second));
        assert!(get(true).is_some() && get(false).is_some());
    }
}
