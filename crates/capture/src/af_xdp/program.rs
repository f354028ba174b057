//! The program that the kernel runs for every frame of the interface, as instructions of eBPF.
//!
//! ```text
//! without snap: a socket for the queue -> redirect to it; else pass on
//! with snap:    no socket for the queue -> pass on
//!               room before the frame for metadata -> true length and mark into it; longer than snap -> cut the tail
//!               redirect
//! ```
//! Always true: a frame that is cut has its true length before it, or was handed over by a driver that does not pass metadata
//! on, in which case there is no mark. Frames of other queues are passed on as they came.
//! Source: the kernel's `Documentation/bpf/standardization/instruction-set.rst`, `Documentation/networking/af_xdp.rst`.

/// Octets of metadata before a frame: its length on the wire, and the mark.
pub(super) const METADATA: usize = 8;
/// What tells that metadata is there.
pub(super) const MARK: u32 = 0x5765_6972;

/// One instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper one.
    registers: u8,
    offset: i16,
    constant: i32,
}

// Registers: what a call returns, its arguments, two that calls leave alone, and the stack.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const FRAME: u8 = 6;
const LENGTH: u8 = 7;
const STACK: u8 = 10;

// Helper functions of the kernel, by number.
const LOOK_UP: i32 = 1;
const REDIRECT: i32 = 51;
const ADJUST_METADATA: i32 = 54;
const ADJUST_TAIL: i32 = 65;
/// Octets of the frame altogether; kernel 5.18.
const FRAME_LENGTH: i32 = 188;

// Places in what is known of a frame (`struct xdp_md`).
const DATA: i16 = 0;
const DATA_META: i16 = 8;
const RX_QUEUE: i16 = 16;

/// Verdict: on to the kernel's own stack.
const PASS: i32 = 2;

const fn op(code: u8, destination: u8, source: u8, offset: i16, constant: i32) -> Instruction {
    // The lower half is the first field of two bit fields, on a machine whose octets run the same way.
    let registers = if cfg!(target_endian = "little") { destination | source << 4 } else { destination << 4 | source };
    Instruction { code, registers, offset, constant }
}

const fn set(register: u8, constant: i32) -> Instruction {
    op(0xb7, register, 0, 0, constant)
}

const fn copy(register: u8, from: u8) -> Instruction {
    op(0xbf, register, from, 0, 0)
}

const fn add(register: u8, constant: i32) -> Instruction {
    op(0x07, register, 0, 0, constant)
}

/// 32 bits from memory.
const fn load(register: u8, from: u8, offset: i16) -> Instruction {
    op(0x61, register, from, offset, 0)
}

/// 32 bits to memory.
const fn store(to: u8, offset: i16, register: u8) -> Instruction {
    op(0x63, to, register, offset, 0)
}

const fn call(function: i32) -> Instruction {
    op(0x85, 0, 0, 0, function)
}

const EXIT: Instruction = op(0x95, 0, 0, 0, 0);

/// The first argument is a map, by its descriptor: two instructions.
const fn map(descriptor: i32) -> [Instruction; 2] {
    const IS_MAP: u8 = 1;
    [op(0x18, R1, IS_MAP, 0, descriptor), op(0, 0, 0, 0, 0)]
}

/// The program for a map of sockets by queue, by its descriptor.
pub(super) fn program(sockets: i32, snap: Option<u32>) -> Vec<Instruction> {
    let [map_low, map_high] = map(sockets);
    // With PASS as its flags a redirection to a queue without a socket passes the frame on.
    let redirect = [load(R2, FRAME, RX_QUEUE), map_low, map_high, set(R3, PASS), call(REDIRECT), EXIT];
    let mut program = vec![copy(FRAME, R1)];
    if let Some(snap) = snap {
        let pass = [set(R0, PASS), EXIT];
        program.extend([
            load(R1, FRAME, RX_QUEUE),
            store(STACK, -4, R1),
            copy(R2, STACK),
            add(R2, -4),
            map_low,
            map_high,
            call(LOOK_UP),
            // There is one: over the two of `pass`.
            op(0x55, R0, 0, pass.len() as i16, 0),
        ]);
        program.extend(pass);
        let cut = [
            // Not longer than snap: nothing is cut.
            op(0xb5, LENGTH, 0, 4, snap as i32),
            copy(R1, FRAME),
            set(R2, snap as i32),
            op(0x1f, R2, LENGTH, 0, 0),
            call(ADJUST_TAIL),
        ];
        let tell = [
            load(R1, FRAME, DATA_META),
            load(R2, FRAME, DATA),
            copy(R3, R1),
            add(R3, METADATA as i32),
            // Never so, but the kernel wants to see that it was asked: over the rest of `tell`, and `cut`.
            op(0x2d, R3, R2, (2 + cut.len()) as i16, 0),
            store(R1, 0, LENGTH),
            op(0x62, R1, 0, 4, MARK as i32),
        ];
        program.extend([
            copy(R1, FRAME),
            call(FRAME_LENGTH),
            copy(LENGTH, R0),
            copy(R1, FRAME),
            set(R2, -(METADATA as i32)),
            call(ADJUST_METADATA),
            // No room for metadata: the frame goes on whole.
            op(0x55, R0, 0, (tell.len() + cut.len()) as i16, 0),
        ]);
        program.extend(tell);
        program.extend(cut);
    }
    program.extend(redirect);
    program
}
