//! What every sender of frames can do, and why it refuses a frame.

/// Sends frames that begin with an Ethernet header out of an interface or a port.
pub trait SendFrames: Send {
    /// Sends frames, at most [`MAX_BURST_FRAMES`](crate::MAX_BURST_FRAMES), without waiting. Returns how many of the first ones
    /// were taken; if it is none, why the first one was refused.
    ///
    /// # Errors
    /// The refusal of the first frame.
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, SendRefusal>;

    /// After [`SendRefusal::Removed`]: attaches to the interface that has the name now. Returns whether
    /// there is one that can be used.
    fn bind(&mut self) -> bool;
}

/// Why the kernel did not take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendRefusal {
    /// It is longer than the MTU permits.
    TooLong,
    /// It is shorter than the Ethernet header.
    TooShort,
    /// The queue of the interface is full, or there is no memory: the next frames will not be taken
    /// either.
    Interface,
    /// The interface is down.
    Down,
    /// The interface was removed. [`SendFrames::bind`] attaches to another one of its name.
    Removed,
}
