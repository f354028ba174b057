//! The eBPF program that the kernel runs for every frame of the interface.
//!
//! ```text
//! without snap: redirect the frame to the socket of its queue; without a socket, pass it to the stack
//! with snap:    no socket for the queue -> pass it to the stack
//!               headroom for metadata -> store original length and mark; longer than snap -> cut the tail
//!               redirect
//! ```
//! Invariants: a frame that is cut has its original length before it, or came from a driver that
//! does not pass metadata; then there is no mark. Frames of other queues are passed to the stack
//! unchanged. Source: the kernel's `Documentation/bpf/standardization/instruction-set.rst`,
//! `Documentation/networking/af_xdp.rst`.

/// Bytes of metadata before a frame: its length on the wire, and the mark.
pub(super) const METADATA_BYTES: usize = 8;
/// Marks that the metadata is present.
pub(super) const MARK: u32 = 0x5765_6972;

/// One instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// Destination register in the lower half, source register in the upper one.
    registers: u8,
    offset: i16,
    constant: i32,
}

// Registers: result of a call, its arguments, two that calls preserve, and the stack pointer.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const FRAME: u8 = 6;
const LENGTH: u8 = 7;
const STACK: u8 = 10;

// Helper functions of the kernel, by number.
const MAP_LOOKUP: i32 = 1; // bpf_map_lookup_elem
const REDIRECT: i32 = 51; // bpf_redirect_map
const ADJUST_METADATA: i32 = 54; // bpf_xdp_adjust_meta
const ADJUST_TAIL: i32 = 65; // bpf_xdp_adjust_tail
/// Length of the frame in bytes (`bpf_xdp_get_buff_len`, Linux 5.18).
const FRAME_LENGTH: i32 = 188;

// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_META: i16 = 8;
const RX_QUEUE: i16 = 16;

/// Verdict `XDP_PASS`: the frame continues to the kernel's network stack.
const PASS: i32 = 2;

const fn op(code: u8, destination: u8, source: u8, offset: i16, constant: i32) -> Instruction {
    // The two halves are bit fields, whose order follows the byte order of the machine.
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

const fn load(register: u8, from: u8, offset: i16) -> Instruction {
    op(0x61, register, from, offset, 0)
}

const fn store(to: u8, offset: i16, register: u8) -> Instruction {
    op(0x63, to, register, offset, 0)
}

const fn call(function: i32) -> Instruction {
    op(0x85, 0, 0, 0, function)
}

const EXIT: Instruction = op(0x95, 0, 0, 0, 0);

/// Sets the first argument to a map, by its descriptor: two instructions.
const fn map(descriptor: i32) -> [Instruction; 2] {
    const IS_MAP: u8 = 1; // BPF_PSEUDO_MAP_FD
    [op(0x18, R1, IS_MAP, 0, descriptor), op(0, 0, 0, 0, 0)]
}

/// Returns the program for a map of sockets by queue, given its descriptor.
pub(super) fn program(sockets: i32, snap_bytes: Option<u32>) -> Vec<Instruction> {
    let [map_low, map_high] = map(sockets);
    // With the flag PASS, a redirection to a queue without a socket passes the frame to the stack.
    let redirect = [load(R2, FRAME, RX_QUEUE), map_low, map_high, set(R3, PASS), call(REDIRECT), EXIT];
    let mut program = vec![copy(FRAME, R1)];
    if let Some(snap) = snap_bytes {
        let pass = [set(R0, PASS), EXIT];
        program.extend([
            load(R1, FRAME, RX_QUEUE),
            store(STACK, -4, R1),
            copy(R2, STACK),
            add(R2, -4),
            map_low,
            map_high,
            call(MAP_LOOKUP),
            // There is a socket: skip `pass`.
            op(0x55, R0, 0, pass.len() as i16, 0),
        ]);
        program.extend(pass);
        let cut = [
            // Not longer than snap: skip the cut.
            op(0xb5, LENGTH, 0, 4, snap as i32),
            copy(R1, FRAME),
            set(R2, snap as i32),
            op(0x1f, R2, LENGTH, 0, 0),
            call(ADJUST_TAIL),
        ];
        let store_metadata = [
            load(R1, FRAME, DATA_META),
            load(R2, FRAME, DATA),
            copy(R3, R1),
            add(R3, METADATA_BYTES as i32),
            // Never true, but the verifier requires the check: skip the rest of this array and
            // `cut`.
            op(0x2d, R3, R2, (2 + cut.len()) as i16, 0),
            store(R1, 0, LENGTH),
            op(0x62, R1, 0, 4, MARK as i32),
        ];
        program.extend([
            copy(R1, FRAME),
            call(FRAME_LENGTH),
            copy(LENGTH, R0),
            copy(R1, FRAME),
            set(R2, -(METADATA_BYTES as i32)),
            call(ADJUST_METADATA),
            // No headroom for metadata: the frame is redirected uncut.
            op(0x55, R0, 0, (store_metadata.len() + cut.len()) as i16, 0),
        ]);
        program.extend(store_metadata);
        program.extend(cut);
    }
    program.extend(redirect);
    program
}
