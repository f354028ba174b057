//! A long run below the rate without loss: nothing may be lost, and memory may not grow.

use crate::Error;
use crate::conditions::memory_resident;
use crate::live::LiveOptions;
use crate::live::consumer::{Consumer, Seen, What};
use crate::live::report::{Measured, Soak};
use crate::live::trial::{Bed, Feed, arrive};
use crate::live::wire::{self, Sent};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use weir_ledger::TrafficCounters;

/// Idle timeout of the flows: with the default there would be more of them from moment to moment for two minutes.
const IDLE: Duration = Duration::from_secs(10);
/// How often it is looked whether something is to be told.
const LOOK: Duration = Duration::from_millis(20);
/// How much more memory at the end than after the first fifth is not growth: so many octets, or this share.
const GROWTH: (u64, f64) = (4 << 20, 0.01);

/// Runs the probe, fused and pinned, for a time at a share of the rate without loss that was found.
pub fn soak(
    bed: &mut Bed<'_>,
    measured: &mut Measured,
    options: &LiveOptions,
    time: Duration,
    show: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let Feed::Wire(_) = &bed.feed else {
        let note = "no soak: a device that makes packets itself gives as many as are taken";
        show(&format!("note: {note}\n"));
        measured.notes.push(note.into());
        return Ok(());
    };
    let fused = measured.rates.iter().find(|rate| rate.consumer == What::Fused.name() && rate.pinned);
    let rate = options.at * fused.map_or(0.0, |rate| rate.pps);
    if rate <= 0.0 {
        return Err(Error::Live(format!("{}: no soak, as no rate without loss was found", bed.scheme)));
    }
    show(&format!(
        "\n{}: fused and pinned at {:.0} % of its rate without loss for {:.1} min\n",
        bed.scheme,
        100.0 * options.at,
        time.as_secs_f64() / 60.0
    ));
    let source = bed.open()?;
    let consumer = Consumer::begin(What::Fused, source, bed.cores.of_pipeline(true), IDLE)?;
    let (before, balance) = (bed.wire_lost()?, std::mem::take(&mut bed.balance));
    let sent = Sent::default();
    let (began, mut told, mut fifth) = (Instant::now(), Instant::now(), None);
    let (interval, stop) = (options.interval, bed.stop);
    let (took, watched) = bed.send(Some(rate), time, &sent, || {
        while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK.min(interval));
            if fifth.is_none() && began.elapsed() >= time / 5 {
                fifth = Some(memory_resident());
            }
            if told.elapsed() >= interval {
                told = Instant::now();
                show(&line(began.elapsed(), &sent, wire::lost()? - before, &consumer.ask()?));
            }
        }
        Ok::<_, Error>(())
    })?;
    watched?;
    let (frames, refused) = (sent.frames.load(Ordering::Relaxed), sent.refused.load(Ordering::Relaxed));
    let last = arrive(&consumer, frames - (bed.wire_lost()? - before))?;
    let memory = memory_resident();
    show(&line(took, &sent, wire::lost()? - before, &last));
    let end = consumer.finish()?;
    bed.account(frames + refused, refused, before, &end, What::Fused)?;
    let balance = std::mem::replace(&mut bed.balance, balance);
    bed.interrupted()?;
    let fifth = fifth.unwrap_or(memory);
    // Before, flows of the beginning have not ended yet, and there are more from moment to moment.
    let grown_up = time / 5 >= IDLE;
    let most = fifth + GROWTH.0.max((fifth as f64 * GROWTH.1) as u64);
    let flat = grown_up.then_some(memory <= most);
    let soak = Soak {
        minutes: took.as_secs_f64() / 60.0,
        wanted_pps: rate,
        pps: (frames + refused) as f64 / took.as_secs_f64().max(1e-9),
        passed: balance.lost() == 0 && flat != Some(false),
        balance,
        memory: [fifth, memory],
        flat,
    };
    show(&format!("{soak}\n"));
    measured.soak = Some(soak);
    Ok(())
}

fn line(elapsed: Duration, sent: &Sent, wire: u64, seen: &Seen) -> String {
    let (frames, refused) = (sent.frames.load(Ordering::Relaxed), sent.refused.load(Ordering::Relaxed));
    let TrafficCounters { metered, dropped_nic, dropped_kernel, dropped_ring, dropped_table_full, .. } = &seen.packets;
    format!(
        "{:>6.0} s  {} sent  {metered} metered  lost: {refused} sender, {wire} wire, {dropped_nic} card, {dropped_kernel} kernel, {dropped_ring} ring, \
         {dropped_table_full} table  {} records  memory {:.1} MiB\n",
        elapsed.as_secs_f64(),
        frames + refused,
        seen.records,
        memory_resident() as f64 / f64::from(1 << 20)
    )
}
