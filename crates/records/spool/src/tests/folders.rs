//! Which folders are taken, and what is in them.

use super::{append, drain, settings};
use crate::{Error, Spool, check};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn a_spool_is_for_one_sink_and_one_writer() {
    let parent = tempfile::tempdir().unwrap();
    let settings = settings(parent.path());
    check(&settings).unwrap();
    let (mut spool, _) = Spool::open(settings.clone()).unwrap();
    append(&mut spool, 1);
    let pid = std::process::id().to_string();
    for result in [Spool::open(settings.clone()).map(drop), check(&settings)] {
        assert!(matches!(result, Err(Error::Locked { holder, .. }) if holder == pid));
    }
    for (name, mode) in [("", 0o750), ("spool", 0o640), ("acks", 0o640), ("lock", 0o640), ("00000001.seg", 0o640)] {
        let found = fs::metadata(settings.folder.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found & !mode, 0, "{name}: {found:o}");
    }
    drop(spool);
    let other = crate::Settings { sink: "json+tcp:other:1".into(), ..settings.clone() };
    for result in [Spool::open(other.clone()).map(drop), check(&other)] {
        let error = result.unwrap_err().to_string();
        assert!(error.ends_with("belongs to the sink json+tcp:h:1, not to json+tcp:other:1; name another folder"));
    }
    check(&settings).unwrap();
    assert_eq!(drain(&mut Spool::open(settings).unwrap().0), [1]);
}

#[test]
fn folders_of_others_are_refused_and_left_as_they_are() {
    let parent = tempfile::tempdir().unwrap();
    let settings = settings(parent.path());
    fs::create_dir(&settings.folder).unwrap();
    let has = |name: &str, expected: fn(&Error) -> bool| {
        fs::write(settings.folder.join(name), "x").unwrap();
        let error = Spool::open(settings.clone()).unwrap_err();
        assert!(expected(&error), "{error}");
        assert_eq!(fs::read_dir(&settings.folder).unwrap().count(), 1);
        fs::remove_file(settings.folder.join(name)).unwrap();
    };
    has("notes.txt", |error| matches!(error, Error::Foreign { name, .. } if name == "notes.txt"));
    has("1.seg", |error| matches!(error, Error::Foreign { .. }));
    has("00000001.seg", |error| matches!(error, Error::NoIdentity(_)));
    has("acks", |error| matches!(error, Error::NoIdentity(_)));
    has("spool", |error| matches!(error, Error::InvalidIdentity(_)));
    fs::write(settings.folder.join("spool.part"), "x").unwrap();
    fs::write(settings.folder.join("lock"), "x").unwrap();
    drop(Spool::open(settings.clone()).unwrap());
    let link = crate::Settings { folder: parent.path().join("link"), ..settings.clone() };
    symlink(&settings.folder, &link.folder).unwrap();
    assert!(matches!(Spool::open(link), Err(Error::NoFolder(_))));
    fs::remove_file(settings.folder.join("acks")).unwrap();
    symlink(settings.folder.join("spool"), settings.folder.join("acks")).unwrap();
    assert!(matches!(Spool::open(settings), Err(Error::Io { .. })));
}

#[test]
fn identifiers_are_never_used_again() {
    let parent = tempfile::tempdir().unwrap();
    let settings = settings(parent.path());
    let mut last = None;
    for round in 0..6 {
        let (mut spool, recovered) = Spool::open(settings.clone()).unwrap();
        for n in 0..5 {
            let (octets, records) = super::batch_of(n);
            let id = spool.append(n as u16, &octets, records).unwrap();
            assert!(Some(id) > last);
            last = Some(id);
        }
        assert_eq!(recovered.waiting.batches, if round % 2 == 1 { 5 } else { 0 });
        if round % 2 == 1 {
            assert_eq!(drain(&mut spool).len(), 10);
            spool.sync().unwrap();
            assert_eq!((spool.status().octets, spool.segments.len()), (0, 0));
        }
    }
}
