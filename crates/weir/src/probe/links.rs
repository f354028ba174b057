//! Interfaces that go down or lose their cable, and come back: it is waited for them, and said so. (One that is removed is for its source to
//! tell.)

use std::ffi::OsString;

/// The interfaces of all sources, and whether they had a link when they were looked at last.
#[derive(Default)]
pub struct Links(Vec<(String, bool)>);

impl Links {
    /// Looks at them for the first time.
    pub fn of(inputs: &[OsString]) -> Self {
        let live = inputs.iter().map(|input| input.to_string_lossy()).filter(|input| weir_capture::is_live(input));
        let mut devices: Vec<String> = live.flat_map(|input| weir_capture::devices(&input)).collect();
        devices.sort();
        devices.dedup();
        let looked = devices.into_iter().filter_map(|device| Some((weir_capture::has_link(&device)?, device)));
        Self(looked.map(|(link, device)| (device, link)).collect())
    }

    /// What changed since they were looked at last, a line each.
    pub fn changes(&mut self) -> Vec<String> {
        let mut changes = Vec::new();
        for (device, before) in &mut self.0 {
            let Some(now) = weir_capture::has_link(device).filter(|now| now != before) else { continue };
            *before = now;
            let what = if now { "has a link again" } else { "is down or has no link; it is waited for" };
            changes.push(format!("{device} {what}"));
        }
        changes
    }
}
