//! The folder of a recorder: any index beside a capture file.

use std::fs;
use weir_query::Expression;
use weir_recorder::{Query, Search};
use weir_testkit::input::Input;

const NAME: &str = "weir_00001_20261120120000.pcapng";
const FLOW: &str = "192.0.2.1:40000-192.0.2.2:443/tcp";

/// Searches a recorded file whose index is the input: records with their length and checksum before them, so that the
/// content of groups is read, too. Invariants: a search ends, and delivers no more frames and errors than parts of the
/// file can have.
///
/// # Panics
/// An invariant does not hold.
pub fn index(input: &[u8]) {
    let mut input = Input(input);
    let frames = input.octet() % 64;
    let (section, capture) = capture(frames);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join(NAME);
    fs::write(&path, &capture).expect("it can be written");
    fs::write(path.with_extension("pcapng.idx"), index_of(&section, &mut input)).expect("it can be written");
    let expression = Expression::new("host 192.0.2.1 and bytes > 0").expect("it is valid");
    let flow = || Query::flow(FLOW).expect("it is a flow");
    for query in [Query::everything(), flow(), flow().within(1, 1 << 40), Query::records(expression)] {
        let search = Search::plan(&[folder.path().to_owned()], query).expect("the folder can be read");
        assert!(search.notices.len() <= 2 && search.files == 1);
        // A block has at least 12 octets, and a part that is damaged is an error.
        let limit = capture.len() / 12 + input.0.len() + 2;
        let open: weir_recorder::Opener = std::sync::Arc::new(weir_capture::open);
        let (mut source, mut delivered) = (search.source(&open), 0);
        loop {
            match source.burst() {
                Ok(None) => break,
                Ok(Some(burst)) => delivered += burst.len(),
                Err(_) => delivered += 1,
            }
            assert!(delivered <= limit, "{delivered} frames and errors");
        }
    }
}

/// An index: its header as the recorder writes it, then records of the input.
fn index_of(section: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let mut index = b"weirIDX1".to_vec();
    append_record(&mut index, section);
    while !input.is_empty() {
        let length = usize::from(input.u16());
        let damage = length >> 15 != 0;
        append_record(&mut index, input.take(length & 0x7fff));
        if damage {
            index.pop();
        }
    }
    index
}

fn append_record(index: &mut Vec<u8>, content: &[u8]) {
    let mut checksum = flate2::Crc::new();
    checksum.update(content);
    index.extend((content.len() as u32).to_le_bytes());
    index.extend(checksum.sum().to_le_bytes());
    index.extend(content);
}

/// The section header, and a whole file with this number of frames.
fn capture(frames: u8) -> (Vec<u8>, Vec<u8>) {
    let mut section = Vec::new();
    append_block(&mut section, 0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    let mut file = section.clone();
    append_block(&mut file, 1, &[1, 0, 0, 0, 0, 0, 0, 0]);
    for number in 0..frames {
        let frame = [number; 60];
        let header = [0, 0, u32::from(number), 60, 60].map(u32::to_le_bytes).concat();
        append_block(&mut file, 6, &[&header[..], &frame].concat());
    }
    (section, file)
}

fn append_block(file: &mut Vec<u8>, kind: u32, content: &[u8]) {
    let length = (12 + content.len() as u32).to_le_bytes();
    file.extend(kind.to_le_bytes());
    file.extend(length);
    file.extend(content);
    file.extend(length);
}
