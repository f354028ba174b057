//! When stored flows start, from the indexes of files.

use crate::reading::{SharedFile, guarded, reader_of};
use crate::selection::GroupBounds;
use crate::source::{HourFiles, hours_of};
use parquet::file::reader::FileReader;
use std::cmp::Reverse;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use weir_fields::{Bounds, end_time, start_time};

/// When flows start, ns since 1970 UTC. Times are those of the index of the files, to the microsecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTimes {
    /// The first and the last start.
    pub starts_ns: RangeInclusive<u64>,
    /// From when on the newest flows start, about as many as were asked for; `None` if there are no more. In a row group,
    /// their ends are taken as evenly spread, and a flow that ends later as one that starts later: mostly, fewer do.
    pub newest_from_ns: Option<u64>,
}

/// Times of the flows of a row group.
struct GroupTimes {
    starts_ns: RangeInclusive<u64>,
    /// The last possible starts: when flows end.
    ends_ns: RangeInclusive<u64>,
    flows: u64,
}

/// When the flows of stores and single files start that start within these times, and when about the newest of them do;
/// `None` without flows. Of a store, only the files of its first hour are opened, and those of the last hours that have
/// the newest flows. What cannot be read is left out.
pub fn stored_times(paths: &[PathBuf], within: &RangeInclusive<u64>, newest_flows: u64) -> Option<StoredTimes> {
    let of_path = |path: &PathBuf| hours_of(path, Some(within), &mut Vec::new(), &mut Vec::new()).ok();
    let stores: Vec<Vec<HourFiles>> = paths.iter().filter_map(of_path).collect();
    let first = stores.iter().filter_map(|hours| hours.iter().find_map(|hour| first_start(hour, within))).min()?;
    let mut hours: Vec<_> = stores.into_iter().flatten().collect();
    // Single files may have any time, and are read first.
    hours.sort_by_key(|of| Reverse(of.hour.as_ref().map_or(u64::MAX, |(_, hour)| hour.start_ns())));
    let mut newest: Vec<GroupTimes> = Vec::new();
    for same in hours.chunk_by(|a, b| a.hour.as_ref().map(|of| of.1) == b.hour.as_ref().map(|of| of.1)) {
        newest.extend(same.iter().flat_map(|hour| groups_of(hour, within)));
        let is_hour = same[0].hour.is_some();
        if is_hour && sum(newest.iter().map(|group| group.flows)) > newest_flows {
            break;
        }
    }
    let last = newest.iter().map(|group| *group.starts_ns.end()).max()?;
    let newest_from_ns = begin_of_newest(&newest, newest_flows).filter(|from| *from > first);
    Some(StoredTimes { starts_ns: first..=last, newest_from_ns })
}

fn first_start(hour: &HourFiles, within: &RangeInclusive<u64>) -> Option<u64> {
    groups_of(hour, within).map(|group| *group.starts_ns.start()).min()
}

/// The row groups with flows that may start within these times.
fn groups_of<'a>(hour: &'a HourFiles, within: &'a RangeInclusive<u64>) -> impl Iterator<Item = GroupTimes> + 'a {
    hour.files.iter().flat_map(|path| times_of(path)).filter_map(move |GroupTimes { starts_ns, ends_ns, flows }| {
        let inside = *starts_ns.start().max(within.start())..=*starts_ns.end().min(within.end());
        let flows = part_of(&starts_ns, &inside, flows);
        let ends_ns = *ends_ns.start().min(within.end())..=*ends_ns.end().min(within.end());
        (!inside.is_empty()).then_some(GroupTimes { starts_ns: inside, ends_ns, flows })
    })
}

/// The times of the row groups of a file; none if it cannot be read.
fn times_of(path: &Path) -> Vec<GroupTimes> {
    let groups = guarded(|| {
        let file = SharedFile::from(File::open(path)?);
        let reader = reader_of(&file)?;
        let groups = reader.metadata().row_groups().iter();
        let times = groups.filter_map(|group| {
            let bounds = GroupBounds { group, file: &file };
            let starts_ns = bounds.numbers(start_time())?;
            let ends_ns = bounds.numbers(end_time()).filter(|ends| !ends.is_empty()).unwrap_or(starts_ns.clone());
            let flows = group.num_rows().unsigned_abs();
            (!starts_ns.is_empty()).then_some(GroupTimes { starts_ns, ends_ns, flows })
        });
        Ok(times.collect())
    });
    groups.unwrap_or_default()
}

/// The sum of numbers that files claim.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// How many of the flows of a time are in a part of it.
fn part_of(all: &RangeInclusive<u64>, part: &RangeInclusive<u64>, flows: u64) -> u64 {
    if part.is_empty() {
        return 0;
    }
    let length = |of: &RangeInclusive<u64>| u128::from(of.end() - of.start()) + 1;
    let flows = u128::from(flows) * length(part) / length(all);
    u64::try_from(flows).unwrap_or(u64::MAX)
}

/// What is taken as evenly spread.
type Spread = fn(&GroupTimes) -> &RangeInclusive<u64>;

/// The first time from which on at most this number of flows start; `None` if that are all.
fn begin_of_newest(groups: &[GroupTimes], flows: u64) -> Option<u64> {
    let mut too_many = groups.iter().map(|group| *group.starts_ns.start()).min()?;
    // With more flows than that at the last of all times, these.
    let mut few = groups.iter().map(|group| *group.starts_ns.end()).max()?;
    let counted = |from: u64, spread: Spread| {
        let later = |of: &RangeInclusive<u64>| from.max(*of.start())..=*of.end();
        sum(groups.iter().map(|group| part_of(spread(group), &later(spread(group)), group.flows)))
    };
    let (starts, ends): (Spread, Spread) = (|group| &group.starts_ns, |group| &group.ends_ns);
    // Where many flows end after the last start, their ends say nothing of their starts.
    let spread = if counted(few, ends) <= flows { ends } else { starts };
    let from_on = |from| counted(from, spread);
    if from_on(too_many) <= flows {
        return None;
    }
    while few - too_many > 1 {
        let middle = too_many + (few - too_many) / 2;
        match from_on(middle) > flows {
            true => too_many = middle,
            false => few = middle,
        }
    }
    Some(few)
}

#[cfg(test)]
mod tests {
    use super::{GroupTimes, begin_of_newest};
    use std::ops::RangeInclusive;

    fn group(times_ns: RangeInclusive<u64>, flows: u64) -> GroupTimes {
        GroupTimes { starts_ns: times_ns.clone(), ends_ns: times_ns, flows }
    }

    #[test]
    fn the_newest_flows_begin_where_no_more_than_these_start() {
        let groups = [group(100..=199, 100), group(150..=249, 200), group(1000..=1000, 5)];
        assert_eq!(begin_of_newest(&groups, 305), None);
        assert_eq!(begin_of_newest(&groups, 5), Some(250));
        // 50 * 2 of the second, and 5.
        assert_eq!(begin_of_newest(&groups, 105), Some(200));
        // 60 * 2, 10, and 5.
        assert_eq!(begin_of_newest(&groups, 135), Some(190));
        // More of them start at one time.
        assert_eq!(begin_of_newest(&groups, 1), Some(1000));
        assert_eq!(begin_of_newest(&[group(7..=7, 3)], 1), Some(7));
        assert_eq!(begin_of_newest(&[], 1), None);
        assert_eq!(begin_of_newest(&[group(0..=u64::MAX, u64::MAX)], u64::MAX / 2), Some(u64::MAX / 2 + 1));
        // Some started long before they ended.
        let long = [GroupTimes { starts_ns: 0..=199, ends_ns: 100..=199, flows: 100 }];
        assert_eq!(begin_of_newest(&long, 25), Some(175));
        // All of them ended after the last one had started.
        let open = [GroupTimes { starts_ns: 0..=199, ends_ns: 300..=500, flows: 100 }];
        assert_eq!(begin_of_newest(&open, 25), Some(149));
    }
}
