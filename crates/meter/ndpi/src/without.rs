//! Without nDPI: there is no library, and so no flow.

use crate::{Classification, Error, Names};
use std::convert::Infallible;

/// There is none.
#[derive(Debug)]
pub struct Library(Infallible);

/// There is none.
#[derive(Debug)]
pub struct Flow(Infallible);

impl Library {
    /// Fails.
    ///
    /// # Errors
    /// [`Error::NotBuiltIn`].
    pub fn open() -> Result<Self, Error> {
        Err(Error::NotBuiltIn)
    }

    /// Octets of a flow.
    pub fn flow_octets() -> usize {
        0
    }

    /// Cannot be called.
    pub fn new_flow(&self) -> Result<Flow, Error> {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn inspect(&mut self, _: &mut Flow, _: &[u8], _: u64) -> bool {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn classify(&mut self, flow: Flow) -> Classification {
        match flow.0 {}
    }

    /// Cannot be called.
    pub fn names(&self, _: &Classification) -> Names {
        match self.0 {}
    }
}

/// `None`: nDPI is not built in.
pub fn version() -> Option<&'static str> {
    None
}
