//! Names of sources, and errors of the operating system.

use super::*;
use flate2::Compression;
use std::fs;

#[test]
fn file_name_does_not_matter_but_is_in_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.txt");
    let mut bytes = Pcap::new(false, 0xa1b2_c3d4).record(1, 0, 4, 4).done();
    bytes.push(0);
    fs::write(&path, bytes).unwrap();
    let (frames, errors) = read(&mut *open(&path).unwrap());
    assert_eq!(frames.len(), 1);
    assert!(errors[0].to_string().starts_with(&format!("{}: at byte 44: ", path.display())), "{}", errors[0]);
}

#[test]
fn directories_missing_files_and_empty_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let message = |path: &Path| open(path).err().unwrap().to_string();
    assert!(message(folder.path()).contains("directory"));
    assert!(matches!(open(&folder.path().join("missing")), Err(Error::Io { .. })));
    let empty = folder.path().join("empty");
    fs::write(&empty, b"").unwrap();
    assert!(message(&empty).contains("empty"));
}

#[test]
#[cfg(target_os = "linux")]
fn files_that_cannot_be_mapped_are_read_as_streams() {
    let message = |path: &str| open(Path::new(path)).err().unwrap().to_string();
    assert!(message("/proc/self/status").contains("text"));
    assert!(message("/dev/null").contains("empty"));
}

#[test]
fn read_error_is_reported_after_the_frames_before_it() {
    struct Failing(std::io::Cursor<Vec<u8>>);
    impl std::io::Read for Failing {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(std::io::Error::from_raw_os_error(5)),
                octets => Ok(octets),
            }
        }
    }
    let capture = Pcap::new(false, 0xa1b2_c3d4).record(1, 0, 4, 4).record(2, 0, 4, 4).done();
    let mut zipped = gzip(&capture, Compression::none());
    zipped.truncate(zipped.len() - 4);
    for bytes in [capture, zipped] {
        let mut source =
            weir_capture::from_reader(Path::new("-"), Box::new(Failing(std::io::Cursor::new(bytes)))).unwrap();
        let (frames, errors) = read(&mut *source);
        assert_eq!(frames.len(), 2);
        assert_eq!(errors.len(), 1);
        assert!(matches!(&errors[0], Error::Io { path, .. } if path == Path::new("-")), "{:?}", errors[0]);
    }
}

#[test]
fn progress_ends_at_the_length_of_the_input() {
    let bytes = Pcap::new(false, 0xa1b2_c3d4).record(1, 0, 40, 40).record(2, 0, 40, 40).done();
    let length = bytes.len() as u64;
    let mut mapped = from_bytes(Path::new("input"), bytes.clone()).unwrap();
    assert_eq!((mapped.progress().done_bytes, mapped.progress().total_bytes), (24, Some(length)));
    read(&mut *mapped);
    assert_eq!(mapped.progress().done_bytes, length);
    let mut stream = read_stream(bytes.clone(), 7);
    read(&mut *stream);
    assert_eq!((stream.progress().done_bytes, stream.progress().total_bytes), (length, None));
    let zipped = gzip(&bytes, Compression::best());
    let length = zipped.len() as u64;
    let mut source = from_bytes(Path::new("input"), zipped).unwrap();
    read(&mut *source);
    assert_eq!((source.progress().done_bytes, source.progress().total_bytes), (length, Some(length)));
}
