//! Locks without poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Ignores poisoning: the data under the locks of this crate is consistent after
/// each statement, and the panic itself is reported when its thread is joined.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
