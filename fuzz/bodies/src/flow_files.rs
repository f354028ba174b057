//! IPFIX files of any exporter, and files of nfdump.

use std::io::Write;
use weir_fields::FieldValue;
use weir_flow::FlowRecord;
use weir_ipfix_file::{Decoder, FileReader, Found, Source};
use weir_nfdump_file::Nfdump;

/// Reads an IPFIX file. Invariants: a flow has packets and does not end before its start, its known fields can be
/// read, and the same file has the same flows and problems.
///
/// # Panics
/// An invariant does not hold.
pub fn ipfix_file(input: &[u8]) {
    flow_file::<Decoder>(input);
}

/// Reads a file of nfdump, with the same invariants.
///
/// # Panics
/// An invariant does not hold.
pub fn nfdump_file(input: &[u8]) {
    flow_file::<Nfdump>(input);
}

fn flow_file<S: Source>(input: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("the folder for temporary files can be written");
    file.write_all(input).expect("the file can be written");
    let paths = [file.path().to_owned()];
    let read = || {
        let Found { mut reader, .. } = FileReader::<S>::open(&paths, None).expect("the file can be opened");
        let known = reader.known().to_vec();
        let (mut flows, mut problems): (Vec<FlowRecord>, Vec<String>) = (Vec::new(), Vec::new());
        loop {
            match reader.read(&mut flows, 100) {
                Ok(true) => {}
                Ok(false) => break,
                Err(problem) => problems.push(format!("{:?}", problem.what)),
            }
        }
        (known, flows, problems)
    };
    let (known, flows, problems) = read();
    for flow in &flows {
        assert!(flow.packets() > 0 && flow.start_ns() <= flow.end_ns(), "{flow:?}");
        for column in &known {
            let value = column.read(flow);
            assert!(!matches!(value, FieldValue::NoValue | FieldValue::Implied(_)), "{}", column.name);
        }
    }
    assert!((known, flows, problems) == read());
}
