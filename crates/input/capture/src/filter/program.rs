//! Interprets programs of the classic Berkeley Packet Filter (BPF): checked once, then run on every
//! frame.
//!
//! In: instructions in the form of libpcap and the kernel. Out: the number of bytes of a frame to
//! keep; 0 drops it. Invariants of a [`Program`]: every jump leads forward to an instruction, the
//! last instruction returns, scratch words and shifts are in range, and no constant divides by 0.
//! So a run takes at most one step per instruction and cannot fail. A load beyond the captured
//! bytes and a division by 0 end the run with 0, as in the kernel.
//!
//! Why no library: libpcap's interpreter (`bpf_filter`) is unsafe C, and calling it per frame would
//! make libpcap a dependency of every build. Source: the BSD Packet Filter (McCanne and Jacobson,
//! 1993); the kernel's `Documentation/networking/filter.rst`.

use opcode::*;
use std::sync::Arc;

/// Largest number of instructions, as in the kernel.
const MAX_INSTRUCTIONS: usize = 4096;
const SCRATCH_WORDS: usize = 16;

/// One instruction, in the form that libpcap and `SO_ATTACH_FILTER` use (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct Instruction {
    /// Opcode: class, and size, operation, mode or source.
    pub code: u16,
    /// Instructions to skip if the condition holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// Constant: an offset, a value or a distance.
    pub constant: u32,
}

/// A program that terminates and cannot fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program(Arc<[Instruction]>);

/// Opcodes. The machine has an accumulator (A), an index register (X) and 16 scratch words (M).
pub(crate) mod opcode {
    // Instruction classes: the lowest three bits.
    pub const LOAD: u16 = 0; // BPF_LD
    pub const LOAD_INDEX: u16 = 1; // BPF_LDX
    pub const STORE: u16 = 2; // BPF_ST
    pub const STORE_INDEX: u16 = 3; // BPF_STX
    pub const COMPUTE: u16 = 4; // BPF_ALU
    pub const JUMP: u16 = 5; // BPF_JMP
    pub const RETURN: u16 = 6; // BPF_RET
    pub const MOVE: u16 = 7; // BPF_MISC

    // Complete opcodes: class, size or operation, mode or source.
    pub const LOAD_WORD: u16 = 0x20; // BPF_W | BPF_ABS
    pub const LOAD_HALF: u16 = 0x28; // BPF_H | BPF_ABS
    pub const LOAD_BYTE: u16 = 0x30; // BPF_B | BPF_ABS
    pub const LOAD_WORD_AT: u16 = 0x40; // BPF_W | BPF_IND
    pub const LOAD_HALF_AT: u16 = 0x48; // BPF_H | BPF_IND
    pub const LOAD_BYTE_AT: u16 = 0x50; // BPF_B | BPF_IND
    pub const LOAD_CONSTANT: u16 = 0x00; // BPF_IMM
    pub const LOAD_SCRATCH: u16 = 0x60; // BPF_MEM
    pub const LOAD_LENGTH: u16 = 0x80; // BPF_LEN
    pub const INDEX_CONSTANT: u16 = 0x01; // BPF_IMM
    pub const INDEX_SCRATCH: u16 = 0x61; // BPF_MEM
    pub const INDEX_LENGTH: u16 = 0x81; // BPF_LEN
    /// Four times the lower half of a byte, the length of an IPv4 header (`BPF_MSH`).
    pub const INDEX_HEADER: u16 = 0xb1;
    pub const RETURN_CONSTANT: u16 = 0x06; // BPF_K
    pub const RETURN_ACCUMULATOR: u16 = 0x16; // BPF_A
    pub const TO_INDEX: u16 = 0x07; // BPF_TAX
    pub const FROM_INDEX: u16 = 0x87; // BPF_TXA

    // Operations of the class COMPUTE, and the source of their second operand.
    pub const ADD: u16 = 0x00;
    pub const SUBTRACT: u16 = 0x10;
    pub const MULTIPLY: u16 = 0x20;
    pub const DIVIDE: u16 = 0x30;
    pub const OR: u16 = 0x40;
    pub const AND: u16 = 0x50;
    pub const SHIFT_LEFT: u16 = 0x60;
    pub const SHIFT_RIGHT: u16 = 0x70;
    pub const NEGATE: u16 = 0x80;
    pub const REMAINDER: u16 = 0x90;
    pub const EXCLUSIVE_OR: u16 = 0xa0;
    pub const OPERATION: u16 = 0xf0;
    pub const WITH_INDEX: u16 = 0x08; // BPF_X

    // Conditions of the class JUMP.
    pub const ALWAYS: u16 = 0x00;
    pub const EQUAL: u16 = 0x10;
    pub const GREATER: u16 = 0x20;
    pub const GREATER_OR_EQUAL: u16 = 0x30;
    pub const ANY_BIT: u16 = 0x40; // BPF_JSET
}

fn class(code: u16) -> u16 {
    code & 7
}

/// Why instructions are no valid program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error("it has {0} instructions, more than {MAX_INSTRUCTIONS}")]
    Length(usize),
    #[error("it does not end with a return")]
    NoReturn,
    #[error("instruction {0}: {1}")]
    Instruction(usize, InstructionError),
}

/// Why an instruction is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstructionError {
    #[error("{0:#04x} is no opcode")]
    Opcode(u16),
    #[error("there is no scratch word {0}")]
    Scratch(u32),
    #[error("it divides by 0")]
    Division,
    #[error("it shifts 32 bits by {0}")]
    Shift(u32),
    #[error("it jumps back, or out of the program")]
    Jump,
}

impl Program {
    /// Checks instructions.
    ///
    /// # Errors
    /// The first violation of the invariants.
    pub(crate) fn new(instructions: &[Instruction]) -> Result<Self, ProgramError> {
        if instructions.len() > MAX_INSTRUCTIONS {
            return Err(ProgramError::Length(instructions.len()));
        }
        match instructions.last() {
            Some(last) if class(last.code) == RETURN => {}
            _ => return Err(ProgramError::NoReturn),
        }
        for (at, instruction) in instructions.iter().enumerate() {
            let following = instructions.len() - at - 1;
            check(instruction, following).map_err(|error| ProgramError::Instruction(at, error))?;
        }
        Ok(Self(instructions.into()))
    }

    /// Returns the number of bytes to keep of a frame, of which `bytes` are captured.
    #[inline]
    pub(crate) fn run(&self, bytes: &[u8], wire_bytes: u32) -> u32 {
        run(&self.0, bytes, wire_bytes).unwrap_or(0)
    }
}

/// Checks an instruction, given the number of instructions after it.
fn check(instruction: &Instruction, following: usize) -> Result<(), InstructionError> {
    let Instruction { code, jump_true, jump_false, constant } = *instruction;
    let unknown = || Err(InstructionError::Opcode(code));
    let scratch = || if constant < SCRATCH_WORDS as u32 { Ok(()) } else { Err(InstructionError::Scratch(constant)) };
    match class(code) {
        LOAD => match code {
            LOAD_WORD | LOAD_HALF | LOAD_BYTE | LOAD_WORD_AT | LOAD_HALF_AT | LOAD_BYTE_AT | LOAD_CONSTANT
            | LOAD_LENGTH => Ok(()),
            LOAD_SCRATCH => scratch(),
            _ => unknown(),
        },
        LOAD_INDEX => match code {
            INDEX_CONSTANT | INDEX_LENGTH | INDEX_HEADER => Ok(()),
            INDEX_SCRATCH => scratch(),
            _ => unknown(),
        },
        STORE | STORE_INDEX if code == class(code) => scratch(),
        COMPUTE => match (code & OPERATION, code & WITH_INDEX) {
            _ if code & !(OPERATION | WITH_INDEX) != COMPUTE => unknown(),
            (NEGATE, WITH_INDEX) => unknown(),
            (DIVIDE | REMAINDER, 0) if constant == 0 => Err(InstructionError::Division),
            (SHIFT_LEFT | SHIFT_RIGHT, 0) if constant > 31 => Err(InstructionError::Shift(constant)),
            (ADD..=EXCLUSIVE_OR, _) => Ok(()),
            _ => unknown(),
        },
        JUMP => {
            let farthest = match code & !WITH_INDEX {
                _ if code == JUMP | ALWAYS => constant as usize,
                other if (EQUAL..=ANY_BIT).contains(&(other - JUMP)) && other & 0xf == JUMP => {
                    usize::from(jump_true.max(jump_false))
                }
                _ => return unknown(),
            };
            if farthest < following { Ok(()) } else { Err(InstructionError::Jump) }
        }
        RETURN if matches!(code, RETURN_CONSTANT | RETURN_ACCUMULATOR) => Ok(()),
        MOVE if matches!(code, TO_INDEX | FROM_INDEX) => Ok(()),
        _ => unknown(),
    }
}

/// Runs a program; `None` if a load or a division fails.
#[inline]
fn run(program: &[Instruction], bytes: &[u8], wire_bytes: u32) -> Option<u32> {
    let (mut accumulator, mut index, mut scratch) = (0_u32, 0_u32, [0_u32; SCRATCH_WORDS]);
    let mut at = 0;
    loop {
        let &Instruction { code, jump_true, jump_false, constant } = program.get(at)?;
        at += 1;
        let word = constant as usize % SCRATCH_WORDS;
        match class(code) {
            LOAD => {
                accumulator = match code {
                    LOAD_WORD => u32::from_be_bytes(load(bytes, constant, 0)?),
                    LOAD_HALF => u16::from_be_bytes(load(bytes, constant, 0)?).into(),
                    LOAD_BYTE => u8::from_be_bytes(load(bytes, constant, 0)?).into(),
                    LOAD_WORD_AT => u32::from_be_bytes(load(bytes, constant, index)?),
                    LOAD_HALF_AT => u16::from_be_bytes(load(bytes, constant, index)?).into(),
                    LOAD_BYTE_AT => u8::from_be_bytes(load(bytes, constant, index)?).into(),
                    LOAD_SCRATCH => scratch[word],
                    LOAD_LENGTH => wire_bytes,
                    _ => constant,
                }
            }
            LOAD_INDEX => {
                index = match code {
                    INDEX_SCRATCH => scratch[word],
                    INDEX_LENGTH => wire_bytes,
                    INDEX_HEADER => u32::from(load::<1>(bytes, constant, 0)?[0] & 0xf) * 4,
                    _ => constant,
                }
            }
            STORE => scratch[word] = accumulator,
            STORE_INDEX => scratch[word] = index,
            COMPUTE => {
                let operand = if code & WITH_INDEX == 0 { constant } else { index };
                accumulator = match code & OPERATION {
                    ADD => accumulator.wrapping_add(operand),
                    SUBTRACT => accumulator.wrapping_sub(operand),
                    MULTIPLY => accumulator.wrapping_mul(operand),
                    DIVIDE => accumulator.checked_div(operand)?,
                    REMAINDER => accumulator.checked_rem(operand)?,
                    OR => accumulator | operand,
                    AND => accumulator & operand,
                    EXCLUSIVE_OR => accumulator ^ operand,
                    SHIFT_LEFT => accumulator.checked_shl(operand).unwrap_or(0),
                    SHIFT_RIGHT => accumulator.checked_shr(operand).unwrap_or(0),
                    _ => accumulator.wrapping_neg(),
                }
            }
            JUMP => {
                let operand = if code & WITH_INDEX == 0 { constant } else { index };
                let holds = match code & OPERATION {
                    EQUAL => accumulator == operand,
                    GREATER => accumulator > operand,
                    GREATER_OR_EQUAL => accumulator >= operand,
                    ANY_BIT => accumulator & operand != 0,
                    _ => {
                        at += constant as usize;
                        continue;
                    }
                };
                at += usize::from(if holds { jump_true } else { jump_false });
            }
            RETURN => return Some(if code == RETURN_CONSTANT { constant } else { accumulator }),
            _ if code == TO_INDEX => index = accumulator,
            _ => accumulator = index,
        }
    }
}

/// Returns the bytes at an offset, if they are captured.
#[inline]
fn load<const N: usize>(bytes: &[u8], offset: u32, index: u32) -> Option<[u8; N]> {
    let start = usize::try_from(u64::from(offset) + u64::from(index)).ok()?;
    bytes.get(start..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u16, constant: u32) -> Instruction {
        Instruction { code, jump_true: 0, jump_false: 0, constant }
    }

    fn refused(instructions: &[Instruction]) -> String {
        Program::new(instructions).expect_err("the program is invalid").to_string()
    }

    #[test]
    fn invalid_instructions_are_refused_with_their_index() {
        let end = instruction(RETURN_CONSTANT, 1);
        assert!(refused(&[]).contains("return"));
        assert!(refused(&[instruction(LOAD_CONSTANT, 1)]).contains("return"));
        assert!(refused(&vec![end; MAX_INSTRUCTIONS + 1]).contains("4097"));
        assert!(refused(&[instruction(JUMP, 1), end]).contains("instruction 0: it jumps"));
        assert!(refused(&[instruction(JUMP, u32::MAX), end]).contains("jumps back"));
        let far = Instruction { jump_false: 1, ..instruction(JUMP | EQUAL, 7) };
        assert!(refused(&[end, far, end]).contains("instruction 1"));
        assert!(refused(&[instruction(LOAD_SCRATCH, 16), end]).contains("word 16"));
        assert!(refused(&[instruction(STORE_INDEX, 16), end]).contains("word 16"));
        assert!(refused(&[instruction(COMPUTE | DIVIDE, 0), end]).contains("divides by 0"));
        assert!(refused(&[instruction(COMPUTE | SHIFT_LEFT, 32), end]).contains("by 32"));
    }

    #[test]
    fn every_opcode_is_interpreted_or_refused() {
        let known: Vec<u16> = (0..=u16::MAX)
            .filter(|&code| {
                Program::new(&[instruction(code, 1), instruction(RETURN_CONSTANT, 0), instruction(RETURN_CONSTANT, 0)])
                    .is_ok()
            })
            .collect();
        // 9 loads, 4 of the index, 2 stores, 11 operations of which 10 also with the index, 9
        // jumps, 2 returns, 2 moves.
        assert_eq!(known.len(), 9 + 4 + 2 + 21 + 9 + 2 + 2, "{known:x?}");
    }

    #[test]
    fn load_beyond_the_frame_and_division_by_0_drop_the_frame() {
        let keep = instruction(RETURN_CONSTANT, 9);
        let run = |program: &[Instruction]| Program::new(program).unwrap().run(&[1, 2, 3, 4], 60);
        assert_eq!(run(&[instruction(LOAD_WORD, 0), keep]), 9);
        assert_eq!(run(&[instruction(LOAD_WORD, 1), keep]), 0);
        assert_eq!(run(&[instruction(LOAD_BYTE, u32::MAX), keep]), 0);
        let wraps = [instruction(INDEX_CONSTANT, u32::MAX), instruction(LOAD_BYTE_AT, 1), keep];
        assert_eq!(run(&wraps), 0, "an offset does not wrap");
        assert_eq!(run(&[instruction(COMPUTE | DIVIDE | WITH_INDEX, 0), keep]), 0);
        assert_eq!(run(&[instruction(LOAD_LENGTH, 0), instruction(RETURN_ACCUMULATOR, 0)]), 60);
    }
}
