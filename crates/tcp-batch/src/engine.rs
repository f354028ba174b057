//! Which devices there are, and which packet goes to which.

use crate::batch::MOST;
use crate::card::Failure;
use crate::conversation::ConnectionRecord;
use crate::cuda::{self, Cuda};
use crate::golden;
use crate::key::{ConnectionKey, Secret};
use crate::lane::Lane;
use crate::record::{Refusal, network};
use weir_packet::Packet;

/// Where batches are walked through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// On cards if there are some that pass a test, else on the processor.
    #[default]
    Auto,
    /// On the processor.
    Cpu,
    /// On cards, or not at all.
    Gpu,
}

/// What an [`Engine`] is to be.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Where batches are walked through.
    pub backend: Backend,
    /// Records of a batch at most: 2 to 2^24. A card takes fewer if its memory asks for that.
    pub batch_size: usize,
    /// Devices, at most: cards of those that are there, or parts that the processor does one after the other.
    pub max_devices: usize,
    /// Directions in trouble of which more is kept (1.5 kB each), at most, on the processor; those beyond are marked `room`.
    /// About: room is made for twice as many at a time.
    pub max_anomalies: usize,
}

/// There is no engine of the kind that was asked for.
#[derive(Debug, thiserror::Error)]
#[error("no card can be used: {0}; `auto` goes on without one")]
pub struct DeviceUnavailable(String);

/// What an engine did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Packets that are part of a connection.
    pub entered: u64,
    /// Packets that are not TCP over IP.
    pub not_tcp: u64,
    /// Later fragments, and packets cut before the ports: nobody knows which connection they are of.
    pub without_ports: u64,
    /// Batches, of all devices.
    pub batches: u64,
    /// Batches that a card began and the processor did over again.
    pub redone: u64,
    /// Why it does not run on a card, or no longer: one line. `None` if it does, or was not asked to.
    pub note: Option<String>,
}

/// Packets in, in the order of the capture; connections out.
///
/// Which order these come in means nothing: some when another connection follows between the same endpoints, the rest at
/// the end. What they say depends neither on the devices nor on where batches end.
pub struct Engine {
    secret: Secret,
    lanes: Vec<Lane>,
    name: String,
    account: EngineCounters,
}

/// Octets of a card's memory per record of a batch, so that its tables can grow to four times what they begin with.
const CARD_OCTETS: usize = 16 << 10;
/// Records of a batch below which a card is of no use.
const SMALL: usize = 1 << 14;
/// Of an engine without options.
const BATCH: usize = 1 << 20;

impl Default for EngineOptions {
    fn default() -> Self {
        Self { backend: Backend::Auto, batch_size: BATCH, max_devices: usize::MAX, max_anomalies: usize::MAX }
    }
}

impl Engine {
    /// Opens the devices. If there is no card [`EngineCounters::note`] says why.
    ///
    /// # Errors
    /// Cards were asked for, and there is none, or it is too old, or it did not pass the test.
    pub fn open(options: EngineOptions) -> Result<Self, DeviceUnavailable> {
        let mut engine = Self::of_choice(options)?;
        engine.lanes.iter_mut().for_each(|lane| lane.limit_trouble(options.max_anomalies));
        Ok(engine)
    }

    fn of_choice(options: EngineOptions) -> Result<Self, DeviceUnavailable> {
        let secret = Secret::new();
        let limit = options.batch_size.clamp(2, MOST);
        let found = match options.backend {
            Backend::Cpu => return Ok(Self::on_processor(secret, limit, options.max_devices, None)),
            Backend::Auto | Backend::Gpu => lanes_on_cards(secret, limit, options.max_devices),
        };
        match found {
            Ok((lanes, name)) => Ok(Self::of(secret, lanes, name, None)),
            Err(Failure(why)) if options.backend == Backend::Gpu => Err(DeviceUnavailable(why)),
            Err(Failure(why)) => {
                let note = Some(format!("no card is used: {why}"));
                Ok(Self::on_processor(secret, limit, 1, note))
            }
        }
    }

    fn on_processor(secret: Secret, limit: usize, parts: usize, note: Option<String>) -> Self {
        // More parts than one are no faster on one thread; tests have some.
        let parts = if parts == usize::MAX { 1 } else { parts.max(1) };
        let lanes = (0..parts).map(|_| Lane::new(secret, limit)).collect();
        Self::of(secret, lanes, "processor".into(), note)
    }

    pub(crate) fn of(secret: Secret, lanes: Vec<Lane>, name: String, note: Option<String>) -> Self {
        Self { secret, lanes, name, account: EngineCounters { note, ..EngineCounters::default() } }
    }

    /// What it runs on, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it did so far.
    pub fn account(&self) -> EngineCounters {
        let sum = |of: fn(&Lane) -> u64| self.lanes.iter().map(of).sum();
        let failed = self.lanes.iter().find_map(|lane| lane.failure.as_ref());
        let note = failed.map(|why| format!("a card failed, the processor goes on: {why}"));
        let note = note.or_else(|| self.account.note.clone());
        EngineCounters { batches: sum(|lane| lane.batches), redone: sum(|lane| lane.redone), note, ..self.account }
    }

    /// Takes packets. Connections that ended, and that another one follows, are done, some batches later.
    pub fn enter(&mut self, packets: &[Packet], done: &mut Vec<ConnectionRecord>) {
        for packet in packets {
            match network(packet) {
                Ok(_) => self.account.entered += 1,
                Err(Refusal::NotTcp) => {
                    self.account.not_tcp += 1;
                    continue;
                }
                Err(Refusal::NoPorts) => {
                    self.account.without_ports += 1;
                    continue;
                }
            }
            // Both directions of a connection are on one device.
            let lane = match self.lanes.len() {
                1 => 0,
                lanes => (ConnectionKey::of_packet(packet).0.hash(&self.secret) >> 32) as usize % lanes,
            };
            self.lanes[lane].enter(packet, done);
        }
    }

    /// Ends the capture: all connections that are left are done.
    pub fn finish(mut self, done: &mut Vec<ConnectionRecord>) -> EngineCounters {
        for lane in &mut self.lanes {
            lane.finish(done);
        }
        self.account()
    }
}

/// A lane on every card that passes the test, and their names.
fn lanes_on_cards(secret: Secret, limit: usize, most: usize) -> Result<(Vec<Lane>, String), Failure> {
    let cards = usize::try_from(cuda::cards()?).unwrap_or(0).min(most.max(1));
    let mut lanes = Vec::new();
    let mut names = Vec::new();
    for number in 0..cards as i32 {
        golden::test(Box::new(Cuda::open(number)?.0))?;
        let (card, name) = Cuda::open(number)?;
        let fits = card.free_octets()? / CARD_OCTETS;
        if fits < limit.min(SMALL) {
            return Err(Failure(format!("{name} has too little free memory")));
        }
        lanes.push(Lane::on(Box::new(card), secret, limit.min(fits))?);
        names.push(name);
    }
    Ok((lanes, names.join(", ")))
}
