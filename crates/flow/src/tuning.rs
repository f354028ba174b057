//! How the meter uses the machine. Records do not depend on any of it; the defaults are what was measured
//! to be best (`docs/performance.md`), the rest is there to measure against.

/// The pages that the table's memory is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageKind {
    /// The system's small pages, 4 KiB.
    Small,
    /// 2 MiB pages as far as the system has some to give (transparent huge pages).
    #[default]
    Transparent,
    /// 2 MiB pages reserved beforehand (hugetlbfs); small pages if there are not enough.
    Hugetlb2M,
    /// 1 GiB pages reserved beforehand; small pages if there are not enough.
    Hugetlb1G,
}

/// Field groups that [`crate::Meter`] can leave out, so that their cost can be measured: packet sizes but for their sum.
pub const SIZES: u8 = 1;
/// Gaps between packets.
pub const GAPS: u8 = 2;
/// TTL, type of service and control bits.
pub const HEADERS: u8 = 4;
/// VLAN, MPLS, tunnel, interface.
pub const LABELS: u8 = 8;
/// TCP analysis.
pub const CONVERSATIONS: u8 = 16;
/// All of them: what the meter is for.
pub const ALL: u8 = SIZES | GAPS | HEADERS | LABELS | CONVERSATIONS;

/// The instruction set that the table is searched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// What every processor of the architecture has.
    Plain,
    /// AVX2 and BMI.
    Avx2,
    /// AVX-512 BW and VL.
    Avx512,
}

/// How the meter uses the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Packets whose memory is fetched together, 1 to 64; 1 fetches nothing ahead.
    pub prefetch_packets: usize,
    /// Pages of the table's memory.
    pub pages: PageKind,
    /// Instruction set; `None` takes the best that the processor has, and so does one that it has not.
    pub instructions: Option<Instructions>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { prefetch_packets: 64, pages: PageKind::Transparent, instructions: None }
    }
}
