//! Sessions in the order in which they were begun, so that the oldest one is evicted first.

/// No session.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct SessionOrder {
    /// Per session: the next older and the next newer one, or [`NONE`].
    neighbours: Vec<[u32; 2]>,
    /// Or [`NONE`].
    pub oldest: u32,
    pub newest: u32,
}

impl SessionOrder {
    pub fn new(sessions: u32) -> Self {
        Self { neighbours: Vec::with_capacity(sessions as usize + 1), oldest: NONE, newest: NONE }
    }

    /// Adds a session, which is not in it.
    pub fn push(&mut self, index: u32) {
        let at = index as usize;
        if at >= self.neighbours.len() {
            self.neighbours.resize(at + 1, [NONE; 2]);
        }
        self.neighbours[at] = [self.newest, NONE];
        match self.neighbours.get_mut(self.newest as usize) {
            Some([_, newer]) => *newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
    }

    /// Removes a session, which is in it.
    pub fn remove(&mut self, index: u32) {
        let [older, newer] = self.neighbours[index as usize];
        match self.neighbours.get_mut(older as usize) {
            Some([_, of_older]) => *of_older = newer,
            None => self.oldest = newer,
        }
        match self.neighbours.get_mut(newer as usize) {
            Some([of_newer, _]) => *of_newer = older,
            None => self.newest = older,
        }
    }

    /// The session that was begun after this one, or [`NONE`].
    pub fn newer(&self, index: u32) -> u32 {
        self.neighbours[index as usize][1]
    }
}
