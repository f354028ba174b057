//! Assembles classic BPF programs with labels, and the filters of a packet socket.
//!
//! A program reads a frame and returns a number. A filter returns the bytes to keep; 0 drops the
//! frame, which the kernel then does not count.

use crate::filter::Instruction;
use crate::filter::opcode::{EQUAL, JUMP, LOAD_WORD, RETURN_CONSTANT};

/// Offsets at which the kernel provides the packet type (`PACKET_OUTGOING`, ...) and the EtherType,
/// in host order.
pub(super) const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
pub(super) const PROTOCOL: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
/// Packet type of a frame that the host sends.
pub(super) const OUTGOING: u32 = libc::PACKET_OUTGOING as u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

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
    pub fn add(&mut self, code: u16, constant: u32) {
        self.instructions.push(Instruction { code, jump_true: 0, jump_false: 0, constant });
    }

    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.add(JUMP, 0);
    }

    /// Appends a jump that is taken if a condition on the accumulator holds, such as [`EQUAL`].
    /// (Conditional jumps reach only 255 instructions, so this combines one with an unconditional
    /// jump.)
    pub fn jump_if(&mut self, condition: u16, constant: u32, to: Label) {
        self.instructions.push(Instruction { code: JUMP | condition, jump_true: 0, jump_false: 1, constant });
        self.jump(to);
    }

    /// Resolves the jumps and returns the instructions.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let target = self.targets[label.0].expect("every target of a jump is placed");
            self.instructions[at].constant = (target.checked_sub(at + 1).expect("jumps lead forward")) as u32;
        }
        self.instructions
    }
}

pub(super) fn drop_filter() -> Vec<Instruction> {
    let mut program = Program::default();
    program.add(RETURN_CONSTANT, 0);
    program.finish()
}

/// Returns a filter that cuts frames to the snap length. On a loopback interface it drops sent
/// frames, because each of them is received, too.
///
/// (`PACKET_IGNORE_OUTGOING` would do that earlier, but works for fanout groups only since Linux
/// 6.2.)
pub(super) fn snap_filter(snap_bytes: Option<u32>, is_loopback: bool) -> Vec<Instruction> {
    let mut program = Program::default();
    let outgoing = program.label();
    if is_loopback {
        program.add(LOAD_WORD, PACKET_TYPE);
        program.jump_if(EQUAL, OUTGOING, outgoing);
    }
    program.add(RETURN_CONSTANT, snap_bytes.unwrap_or(u32::MAX));
    program.place(outgoing);
    program.add(RETURN_CONSTANT, 0);
    program.finish()
}
