//! Soak run: constant rate below the loss-free rate. Passes if no packet is lost and memory does not
//! grow.

use crate::conditions::resident_memory_bytes;
use crate::error::Error;
use crate::live::consumer::{Consumer, ConsumerKind};
use crate::live::report::{Soak, SourceReport};
use crate::live::status::ConsumerStatus;
use crate::live::trial::{Setup, wait_for_packets};
use crate::live::veth::{self, SentFrames};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use weir_ledger::TrafficCounters;

/// Idle timeout of flows. The default of two minutes would let the number of flows grow for that long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two checks for a status line.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Allowed growth between the first fifth and the end: bytes, or share, whichever is more.
const ALLOWED_GROWTH: (u64, f64) = (4 << 20, 0.01);

/// Runs the probe, fused and pinned, for `time` at `rate_share` of its loss-free rate, with a status line every
/// `interval`.
pub fn soak(
    setup: &mut Setup<'_>,
    report: &mut SourceReport,
    [time, interval]: [Duration; 2],
    rate_share: f64,
    show: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    if !setup.is_veth() {
        let note = "no soak run: the device generates packets at full speed";
        show(&format!("note: {note}\n"));
        report.notes.push(note.into());
        return Ok(());
    }
    let fused = report.rates.iter().find(|rate| rate.consumer == ConsumerKind::Fused.name() && rate.pinned);
    let rate = rate_share * fused.map_or(0.0, |rate| rate.pps);
    if rate <= 0.0 {
        return Err(Error::NoLossFreeRate(setup.scheme));
    }
    show(&format!(
        "\n{}: fused and pinned at {:.0} % of its loss-free rate for {:.1} min\n",
        setup.scheme,
        100.0 * rate_share,
        time.as_secs_f64() / 60.0
    ));
    let consumer =
        Consumer::start(ConsumerKind::Fused, setup.open()?, setup.cores.pipeline_affinities(true), IDLE_TIMEOUT)?;
    let (before, balance) = (setup.lost_on_veth()?, std::mem::take(&mut setup.balance));
    let sent = SentFrames::default();
    let (start, mut last_line, mut fifth) = (Instant::now(), Instant::now(), None);
    let stop = setup.stop;
    let (elapsed, watched) = setup.send(Some(rate), time, &sent, || {
        while start.elapsed() < time && !stop.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL.min(interval));
            if fifth.is_none() && start.elapsed() >= time / 5 {
                fifth = Some(resident_memory_bytes());
            }
            if last_line.elapsed() >= interval {
                last_line = Instant::now();
                show(&status_line(start.elapsed(), &sent, veth::lost()? - before, &consumer.status()?));
            }
        }
        Ok::<_, Error>(())
    })?;
    watched?;
    let [accepted, refused] = sent.counts();
    let last = wait_for_packets(&consumer, accepted - (veth::lost()? - before))?;
    let memory = resident_memory_bytes();
    show(&status_line(elapsed, &sent, veth::lost()? - before, &last));
    let end = consumer.finish()?;
    setup.account([accepted, refused], before, &end, ConsumerKind::Fused)?;
    let balance = std::mem::replace(&mut setup.balance, balance);
    setup.check_interrupted()?;
    let fifth = fifth.unwrap_or(memory);
    // Until the first flows time out, the number of flows grows.
    let steady = time / 5 >= IDLE_TIMEOUT;
    let limit = fifth + ALLOWED_GROWTH.0.max((fifth as f64 * ALLOWED_GROWTH.1) as u64);
    let memory_constant = steady.then_some(memory <= limit);
    let soak = Soak {
        minutes: elapsed.as_secs_f64() / 60.0,
        requested_pps: rate,
        pps: (accepted + refused) as f64 / elapsed.as_secs_f64().max(1e-9),
        passed: balance.lost() == 0 && memory_constant != Some(false),
        balance,
        memory_bytes: [fifth, memory],
        memory_constant,
    };
    show(&format!("{soak}\n"));
    report.soak = Some(soak);
    Ok(())
}

fn status_line(elapsed: Duration, sent: &SentFrames, veth: u64, status: &ConsumerStatus) -> String {
    let [accepted, refused] = sent.counts();
    let TrafficCounters { metered, dropped_nic, dropped_kernel, dropped_queue, dropped_cache_full, .. } =
        &status.packets;
    format!(
        "{:>6.0} s  {} sent  {metered} metered  lost: {refused} sender, {veth} veth, {dropped_nic} NIC, {dropped_kernel} kernel, {dropped_queue} queue, \
         {dropped_cache_full} cache  {} records  memory {:.1} MiB\n",
        elapsed.as_secs_f64(),
        accepted + refused,
        status.records,
        resident_memory_bytes() as f64 / f64::from(1 << 20)
    )
}
