//! Numbers of batches and totals of their records.

use weir_ledger::RecordTotals;

/// Batches, and the records in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Batches.
    pub batches: u64,
    /// Their records.
    pub records: RecordTotals,
}

impl Count {
    /// Adds another count.
    pub fn merge(&mut self, other: Self) {
        self.batches += other.batches;
        self.records.merge(other.records);
    }

    /// Subtracts another count. What would be negative becomes 0.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            batches: self.batches.saturating_sub(other.batches),
            records: self.records.saturating_sub(other.records),
        }
    }

    /// Eight octets for each of its four numbers.
    pub(crate) fn encode(self) -> [u8; 32] {
        let mut octets = [0; 32];
        let RecordTotals { flows, packets, bytes } = self.records;
        for (place, number) in octets.chunks_exact_mut(8).zip([self.batches, flows, packets, bytes]) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        octets
    }

    /// `None` for numbers that no run reaches, so that sums do not overflow.
    pub(crate) fn decode(octets: &[u8]) -> Option<Self> {
        const MOST: u64 = 1 << 60;
        let mut numbers = octets.chunks_exact(8).map(|number| number.try_into().map_or(MOST, u64::from_be_bytes));
        let mut next = || numbers.next().filter(|&number| number < MOST);
        let batches = next()?;
        Some(Self { batches, records: RecordTotals { flows: next()?, packets: next()?, bytes: next()? } })
    }
}

/// A count of this run, and of earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Appended before this run.
    pub earlier: Count,
    /// Appended in this run.
    pub own: Count,
}

impl Split {
    /// All.
    pub fn total(self) -> Count {
        let mut all = self.earlier;
        all.merge(self.own);
        all
    }

    /// What is between two positions; earlier runs end at `border`.
    pub(crate) fn between(from: Count, to: Count, border: Count) -> Self {
        if to.batches <= border.batches {
            return Self { earlier: to.saturating_sub(from), own: Count::default() };
        }
        if from.batches >= border.batches {
            return Self { earlier: Count::default(), own: to.saturating_sub(from) };
        }
        Self { earlier: border.saturating_sub(from), own: to.saturating_sub(border) }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.earlier.merge(other.earlier);
        self.own.merge(other.own);
    }
}
