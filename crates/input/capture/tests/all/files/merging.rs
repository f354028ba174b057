//! Several inputs are merged by time.

use super::*;

type Input = Box<dyn weir_capture::Source + Send>;

fn input(seconds: &[u32]) -> Input {
    let file =
        seconds.iter().fold(Pcap::new(false, 0xa1b2_c3d4), |file, &second| file.record(second, 0, second % 7, 9));
    from_bytes(Path::new("input"), file.done()).unwrap()
}

fn seconds(source: &mut dyn weir_capture::Source) -> Vec<u64> {
    let (frames, errors) = read(source);
    assert!(errors.is_empty());
    for frame in &frames {
        assert_eq!(frame.bytes.len() as u64, frame.time_ns / 1_000_000_000 % 7, "each frame keeps its own octets");
    }
    frames.iter().map(|frame| frame.time_ns / 1_000_000_000).collect()
}

#[test]
fn oldest_frame_is_first_across_bursts() {
    let evens: Vec<u32> = (0..1000).map(|n| 2 * n).collect();
    let odds: Vec<u32> = (0..700).map(|n| 2 * n + 1).collect();
    let mut expected: Vec<u64> = evens.iter().chain(&odds).map(|&n| n.into()).collect();
    expected.sort_unstable();
    assert_eq!(seconds(&mut *merge(vec![input(&evens), input(&odds), input(&[])])), expected);
}

#[test]
fn order_within_an_input_is_kept_where_time_goes_back() {
    let mut merged = merge(vec![input(&[5, 1, 9]), input(&[4, 6, 2])]);
    assert_eq!(seconds(&mut *merged), [4, 5, 1, 6, 2, 9]);
}

#[test]
fn frames_of_equal_time_follow_the_order_of_the_inputs() {
    let mut merged = merge(vec![input(&[3, 3]), input(&[3])]);
    let interfaces: Vec<_> = read(&mut *merged).0.iter().map(|frame| frame.interface).collect();
    assert_eq!(interfaces, [1, 1, 2]);
}

#[test]
fn no_input_is_empty_and_a_single_input_is_unchanged() {
    assert!(merge(Vec::new()).burst().unwrap().is_none());
    let file = Ng::section(false).interface(1, 0, &[]).interface(1, 0, &[]).enhanced(1, 5, 4, 4).done();
    let (frames, _) = read(&mut *merge(vec![from_bytes(Path::new("input"), file).unwrap()]));
    assert_eq!(frames[0].interface, 2, "the number in the file, plus 1");
}

#[test]
fn interfaces_of_different_inputs_stay_distinct() {
    let two = Ng::section(false).interface(1, 0, &[]).interface(1, 0, &[]);
    let two = two.enhanced(1, 2_000_000, 4, 4).enhanced(0, 4_000_000, 4, 4).enhanced(1, 6_000_000, 4, 4).done();
    let inputs = vec![input(&[1, 3, 5]), from_bytes(Path::new("two"), two).unwrap()];
    let (frames, _) = read(&mut *merge(inputs));
    assert_eq!(frames.iter().map(|frame| frame.interface).collect::<Vec<_>>(), [1, 2, 1, 3, 1, 2]);
}

#[test]
fn damage_in_one_input_is_reported_once_and_the_others_continue() {
    let mut cut = Pcap::new(false, 0xa1b2_c3d4).record(1, 0, 1, 1).record(4, 0, 4, 4).done();
    cut.pop();
    let holed = Ng::section(false).interface(1, 0, &[]).enhanced(0, 2_000_000, 2, 2).enhanced(9, 0, 2, 2);
    let holed = holed.enhanced(0, 5_000_000, 5, 5).done();
    let inputs = vec![from_bytes(Path::new("cut"), cut), from_bytes(Path::new("holed"), holed), Ok(input(&[3, 6]))];
    let (frames, errors) = read(&mut *merge(inputs.into_iter().map(Result::unwrap).collect()));
    assert_eq!(frames.iter().map(|frame| frame.time_ns / 1_000_000_000).collect::<Vec<_>>(), [1, 2, 3, 5, 6]);
    let paths: Vec<_> = errors.iter().map(|error| error.to_string()[..3].to_owned()).collect();
    assert_eq!(paths, ["cut", "hol"]);
}

#[test]
fn progress_is_the_sum() {
    let mut merged = merge(vec![input(&[1, 2]), input(&[3])]);
    let total = merged.progress().total_bytes;
    read(&mut *merged);
    assert_eq!(Some(merged.progress().done_bytes), total);
    let mut unknown = merge(vec![input(&[1]), read_stream(Pcap::new(true, 0xa1b2_c3d4).done(), 9)]);
    read(&mut *unknown);
    assert_eq!(unknown.progress().total_bytes, None);
}
