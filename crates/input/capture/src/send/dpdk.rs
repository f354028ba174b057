//! Opens the ports of DPDK for sending.

use crate::error::Error;
use crate::live_error::LiveError;
use crate::send_frames::SendFrames;

/// Opens a device of DPDK for sending: `dpdk:DEVICE[,key=value]...`, one sender for each of `queues`
/// pipelines.
///
/// # Errors
/// [`Error::Live`]: this is built without DPDK, a wrong setting, or DPDK does not open the device.
pub fn open_dpdk_senders(output: &str, queues: usize) -> Result<Vec<Box<dyn SendFrames>>, Error> {
    #[cfg(feature = "dpdk")]
    let opened = {
        let device = output.strip_prefix("dpdk:").unwrap_or(output);
        let transmitters = crate::live::dpdk::open_output(device, u16::try_from(queues).unwrap_or(u16::MAX));
        transmitters.map_err(|error| LiveError::from(Box::new(error)))
    };
    #[cfg(not(feature = "dpdk"))]
    let opened = Err::<Vec<super::FrameSender>, _>(queues).map_err(|_| LiveError::NoDpdk);
    let senders = opened.map_err(|cause| Error::Live { name: output.into(), cause })?;
    Ok(senders.into_iter().map(|sender| Box::new(sender) as Box<dyn SendFrames>).collect())
}
