//! Assembles classic BPF programs with labels, and the filters of a packet socket.
//!
//! A program reads a frame and returns a number. A filter returns the bytes to keep; 0 drops the
//! frame, which the kernel then does not count.

/// An instruction (`struct sock_filter`).
pub(super) type Instruction = libc::sock_filter;

/// Offsets at which the kernel provides the packet type (`PACKET_OUTGOING`, ...) and the EtherType,
/// in host order.
pub(super) const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
pub(super) const PROTOCOL: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
/// Packet type of a frame that the host sends.
pub(super) const OUTGOING: u32 = libc::PACKET_OUTGOING as u32;

/// Opcodes. `ACC` is the accumulator, `X` the index register, `SLOT` one of 16 words of scratch
/// memory.
pub(super) mod code {
    /// ACC = a word or half word of the frame.
    pub const LOAD_WORD: u16 = 0x20;
    pub const LOAD_HALF: u16 = 0x28;
    /// ACC = a word, half word or byte of the frame at offset X plus the constant.
    pub const LOAD_WORD_AT_X: u16 = 0x40;
    pub const LOAD_HALF_AT_X: u16 = 0x48;
    pub const LOAD_BYTE_AT_X: u16 = 0x50;
    /// ACC or X = a SLOT, and the reverse.
    pub const LOAD_SLOT: u16 = 0x60;
    pub const LOAD_X_SLOT: u16 = 0x61;
    pub const STORE_SLOT: u16 = 0x02;
    pub const STORE_X_SLOT: u16 = 0x03;
    /// ACC or X = the constant.
    pub const SET: u16 = 0x00;
    pub const SET_X: u16 = 0x01;
    /// ACC = ACC and the constant, or ACC and X.
    pub const ADD: u16 = 0x04;
    pub const MULTIPLY: u16 = 0x24;
    pub const AND: u16 = 0x54;
    pub const SHIFT_RIGHT: u16 = 0x74;
    pub const ADD_X: u16 = 0x0c;
    pub const EXCLUSIVE_OR_X: u16 = 0xac;
    /// X = ACC, ACC = X.
    pub const TO_X: u16 = 0x07;
    pub const FROM_X: u16 = 0x87;
    /// Jumps: always, or by a condition on ACC.
    pub const JUMP: u16 = 0x05;
    pub const JUMP_IF_EQUAL: u16 = 0x15;
    pub const JUMP_IF_AT_LEAST: u16 = 0x35;
    pub const JUMP_IF_ANY_BIT: u16 = 0x45;
    /// Returns the constant or ACC.
    pub const RETURN: u16 = 0x06;
    pub const RETURN_ACC: u16 = 0x16;
}

/// A target of jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program under construction.
#[derive(Default)]
pub(super) struct Program {
    instructions: Vec<Instruction>,
    /// Jumps: index of the instruction, and target.
    jumps: Vec<(usize, Label)>,
    /// Instruction index of each label, if it is placed.
    targets: Vec<Option<usize>>,
}

impl Program {
    /// Creates a label that is not placed yet.
    pub fn label(&mut self) -> Label {
        self.targets.push(None);
        Label(self.targets.len() - 1)
    }

    /// Places a label at the next instruction.
    pub fn place(&mut self, label: Label) {
        self.targets[label.0] = Some(self.instructions.len());
    }

    /// Appends an instruction that is no jump.
    pub fn add(&mut self, code: u16, k: u32) {
        self.instructions.push(Instruction { code, jt: 0, jf: 0, k });
    }

    /// Appends a jump.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.add(code::JUMP, 0);
    }

    /// Appends a jump that is taken if the condition holds. (Conditional jumps reach only 255
    /// instructions, so this combines one with an unconditional jump.)
    pub fn jump_if(&mut self, condition: u16, k: u32, to: Label) {
        self.instructions.push(Instruction { code: condition, jt: 0, jf: 1, k });
        self.jump(to);
    }

    /// Resolves the jumps and returns the instructions.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let target = self.targets[label.0].expect("every target of a jump is placed");
            self.instructions[at].k = (target.checked_sub(at + 1).expect("jumps lead forward")) as u32;
        }
        self.instructions
    }
}

/// Returns a filter that drops every frame.
pub(super) fn drop_filter() -> Vec<Instruction> {
    let mut program = Program::default();
    program.add(code::RETURN, 0);
    program.finish()
}

/// Returns a filter that cuts frames to the snap length. On a loopback interface it drops sent
/// frames, because each of them is received, too.
///
/// (`PACKET_IGNORE_OUTGOING` would do that earlier, but works for fanout groups only since Linux
/// 6.2.)
pub(super) fn snap_filter(snap: Option<u32>, is_loopback: bool) -> Vec<Instruction> {
    let mut program = Program::default();
    let outgoing = program.label();
    if is_loopback {
        program.add(code::LOAD_WORD, PACKET_TYPE);
        program.jump_if(code::JUMP_IF_EQUAL, OUTGOING, outgoing);
    }
    program.add(code::RETURN, snap.unwrap_or(u32::MAX));
    program.place(outgoing);
    program.add(code::RETURN, 0);
    program.finish()
}
