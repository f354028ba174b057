//! Programs for the kernel's packet filter (classic BPF), put together with labels; and the filters of a socket.
//!
//! A program walks a frame and ends with a number: a filter with the octets to keep, of which 0 drops the frame uncounted.

/// An instruction as the kernel takes it.
pub(super) type Instruction = libc::sock_filter;

/// Where the kernel tells how a frame came (`PACKET_OUTGOING`, ...), and what its EtherType is, in host order.
pub(super) const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
pub(super) const PROTOCOL: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
/// A frame that the host sends.
pub(super) const OUTGOING: u32 = libc::PACKET_OUTGOING as u32;

/// What instructions do: `ACC` is the accumulator, `X` the index register, `SLOT` one of 16 words of memory.
pub(super) mod code {
    /// ACC = a word, half word or octet of the frame.
    pub const LOAD_WORD: u16 = 0x20;
    pub const LOAD_HALF: u16 = 0x28;
    /// The same, X octets further on.
    pub const LOAD_WORD_AT_X: u16 = 0x40;
    pub const LOAD_HALF_AT_X: u16 = 0x48;
    pub const LOAD_OCTET_AT_X: u16 = 0x50;
    /// ACC or X from a SLOT, and back.
    pub const LOAD_SLOT: u16 = 0x60;
    pub const LOAD_X_SLOT: u16 = 0x61;
    pub const STORE_SLOT: u16 = 0x02;
    pub const STORE_X_SLOT: u16 = 0x03;
    /// ACC or X = the constant.
    pub const SET: u16 = 0x00;
    pub const SET_X: u16 = 0x01;
    /// ACC and a constant, ACC and X.
    pub const ADD: u16 = 0x04;
    pub const MULTIPLY: u16 = 0x24;
    pub const AND: u16 = 0x54;
    pub const SHIFT_RIGHT: u16 = 0x74;
    pub const ADD_X: u16 = 0x0c;
    pub const EXCLUSIVE_OR_X: u16 = 0xac;
    /// X = ACC, ACC = X.
    pub const TO_X: u16 = 0x07;
    pub const FROM_X: u16 = 0x87;
    /// On from another place: always, or by what ACC is.
    pub const JUMP: u16 = 0x05;
    pub const JUMP_IF_EQUAL: u16 = 0x15;
    pub const JUMP_IF_AT_LEAST: u16 = 0x35;
    pub const JUMP_IF_ANY_BIT: u16 = 0x45;
    /// The end, with a constant or ACC.
    pub const END: u16 = 0x06;
    pub const END_WITH_ACC: u16 = 0x16;
}

/// A place in a program that can be jumped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program that is being put together.
#[derive(Default)]
pub(super) struct Program {
    instructions: Vec<Instruction>,
    /// Jumps by the place where they stand.
    jumps: Vec<(usize, Label)>,
    /// Where labels are.
    places: Vec<Option<usize>>,
}

impl Program {
    /// A label whose place is not known yet.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    /// Adds an instruction that is no jump.
    pub fn add(&mut self, code: u16, k: u32) {
        self.instructions.push(Instruction { code, jt: 0, jf: 0, k });
    }

    /// On from a label.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.add(code::JUMP, 0);
    }

    /// On from a label if the condition holds. (Conditions reach 255 instructions far, jumps any.)
    pub fn jump_if(&mut self, condition: u16, k: u32, to: Label) {
        self.instructions.push(Instruction { code: condition, jt: 0, jf: 1, k });
        self.jump(to);
    }

    /// The program.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].expect("every label that is jumped to was placed");
            self.instructions[at].k = (place.checked_sub(at + 1).expect("jumps lead forward")) as u32;
        }
        self.instructions
    }
}

/// Drops every frame.
pub(super) fn nothing() -> Vec<Instruction> {
    let mut program = Program::default();
    program.add(code::END, 0);
    program.finish()
}

/// Keeps so many octets of each frame; of a loopback interface only frames as received, as each is sent, too.
///
/// (The kernel could leave out what is sent before it comes here, but for groups that share an interface only in
/// versions later than 6.1.)
pub(super) fn wanted(snap: Option<u32>, is_loopback: bool) -> Vec<Instruction> {
    let mut program = Program::default();
    let outgoing = program.label();
    if is_loopback {
        program.add(code::LOAD_WORD, PACKET_TYPE);
        program.jump_if(code::JUMP_IF_EQUAL, OUTGOING, outgoing);
    }
    program.add(code::END, snap.unwrap_or(u32::MAX));
    program.place(outgoing);
    program.add(code::END, 0);
    program.finish()
}
