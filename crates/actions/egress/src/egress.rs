//! An egress: several outputs of one pipeline, and which of them gets a packet.

use crate::attachment::Attachment;
use crate::balance::{Balance, Selector};
use crate::error::Error;
use crate::interface::InterfaceOutput;
use crate::output::{InterfaceReport, OutputSettings, PacketOutput};
use crate::pipe::PipeOutput;
use crate::pipe_file::PipeFile;
use crate::specification::{EgressSpec, OutputSpec};
use crate::xdp::XdpOutput;
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::Duration;
use weir_capture::{Frame, FrameSender, LiveSpec, MAX_BURST_FRAMES, SourceSpec};
use weir_ledger::OutputCounters;
use weir_packet::Packet;

/// The outputs of one pipeline that packets are balanced over.
pub struct Egress {
    outputs: Vec<Box<dyn PacketOutput>>,
    balance: Balance,
    selector: Selector,
}

impl Egress {
    /// Joins outputs, at least one. With the same `secret` in all pipelines, a packet reaches the same
    /// output whichever pipeline has it.
    pub fn new(outputs: Vec<Box<dyn PacketOutput>>, balance: Balance, secret: u64) -> Self {
        let selector = Selector::new(balance, outputs.len(), secret);
        Self { outputs, balance, selector }
    }

    /// Starts the threads of the outputs. Call this in the thread of the pipeline: they get its
    /// restrictions, and look for readers from now on.
    pub fn start(&mut self) {
        self.outputs.iter_mut().for_each(|output| output.send(&[]));
    }

    /// Forwards frames of a burst, in their order, each with its headers if they could be decoded.
    /// Never waits.
    pub fn send(&mut self, packets: &[(Frame<'_>, Option<&Packet>)]) {
        let is_balanced = self.outputs.len() > 1 && self.balance != Balance::Mirror;
        for packets in packets.chunks(MAX_BURST_FRAMES) {
            if !is_balanced {
                let frames: ArrayVec<_, MAX_BURST_FRAMES> = packets.iter().map(|&(frame, _)| frame).collect();
                self.outputs.iter_mut().for_each(|output| output.send(&frames));
                continue;
            }
            let selected: ArrayVec<_, MAX_BURST_FRAMES> =
                packets.iter().map(|&(frame, packet)| self.selector.select(&frame, packet)).collect();
            for (number, output) in self.outputs.iter_mut().enumerate() {
                let of_output = packets.iter().zip(&selected).filter(|(_, selected)| **selected == number);
                let frames: ArrayVec<_, MAX_BURST_FRAMES> = of_output.map(|(&(frame, _), _)| frame).collect();
                if !frames.is_empty() {
                    output.send(&frames);
                }
            }
        }
    }

    /// Describes an interface of their frames to the outputs.
    pub fn describe(&mut self, interface: &InterfaceReport) {
        self.outputs.iter_mut().for_each(|output| output.describe(interface));
    }

    /// Lets the outputs forward what they have kept.
    pub fn flush(&mut self) {
        self.outputs.iter_mut().for_each(|output| output.flush());
    }

    /// The outcome of the frames so far, per output in this pipeline.
    pub fn counters(&self) -> Vec<OutputCounters> {
        self.outputs.iter().map(|output| output.counters()).collect()
    }

    /// Forwards the rest, and waits for each output at most some seconds.
    pub fn finish(&mut self) {
        self.outputs.iter_mut().for_each(|output| output.finish());
    }
}

/// Opens an output for these pipelines: one handle each. `sources` are those of the run.
///
/// # Errors
/// It cannot be opened: no such interface, a loop, not permitted, other content. Or it is a folder,
/// which this crate does not open.
pub fn open(
    output: &OutputSpec,
    sources: &[SourceSpec],
    pipelines: usize,
    settings: &OutputSettings,
) -> Result<Vec<Box<dyn PacketOutput>>, Error> {
    let name = output.to_string();
    match output {
        OutputSpec::AfPacket(interface) => {
            InterfaceOutput::open(&name, interface, pipelines, sources, settings.retry).map(boxed)
        }
        OutputSpec::AfXdp(interface) => {
            XdpOutput::open(&name, interface, pipelines, sources, settings.retry).map(boxed)
        }
        OutputSpec::Dpdk(_) => InterfaceOutput::open_dpdk(&name, pipelines, settings.retry).map(boxed),
        OutputSpec::Pcap(path) => PipeOutput::open(&name, path, pipelines, settings).map(boxed),
        OutputSpec::Folder(_) => Err(Error::Folder(name)),
    }
}

fn boxed<T: PacketOutput + 'static>(outputs: Vec<T>) -> Vec<Box<dyn PacketOutput>> {
    outputs.into_iter().map(|output| Box::new(output) as Box<dyn PacketOutput>).collect()
}

/// Checks outputs together, without opening them: none twice in an egress, no file in two of them, and
/// no interface that one of the `sources` monitors, also not through an interface above it.
///
/// # Errors
/// The first of these.
pub fn check(egresses: &[EgressSpec], sources: &[SourceSpec]) -> Result<(), Error> {
    let mut files: Vec<&OutputSpec> = Vec::new();
    for egress in egresses {
        for (number, output) in egress.outputs.iter().enumerate() {
            let is_shared = matches!(output, OutputSpec::AfPacket(_) | OutputSpec::AfXdp(_));
            if egress.outputs[..number].contains(output) || files.contains(&output) {
                return Err(Error::Twice(output.to_string()));
            }
            if !is_shared {
                files.push(output);
            }
            check_loop(output, sources)?;
        }
    }
    Ok(())
}

/// Checks that the files and pipes of outputs can be opened, without opening pipes or creating files.
pub fn check_files(egresses: &[EgressSpec]) -> Vec<Error> {
    let check = |output: &OutputSpec| match output {
        OutputSpec::Pcap(path) => PipeFile::check(&output.to_string(), path).err(),
        _ => None,
    };
    egresses.iter().flat_map(|egress| &egress.outputs).filter_map(check).collect()
}

/// Checks that the interfaces of outputs can be opened, and closes them again.
pub fn check_interfaces(egresses: &[EgressSpec]) -> Vec<Error> {
    let check = |output: &OutputSpec| match output {
        OutputSpec::AfPacket(interface) | OutputSpec::AfXdp(interface) => {
            FrameSender::open(&output.to_string(), interface).err().map(Error::Interface)
        }
        _ => None,
    };
    egresses.iter().flat_map(|egress| &egress.outputs).filter_map(check).collect()
}

fn check_loop(output: &OutputSpec, sources: &[SourceSpec]) -> Result<(), Error> {
    match output {
        OutputSpec::AfPacket(interface) | OutputSpec::AfXdp(interface) => check_interface(output, interface, sources),
        OutputSpec::Dpdk(text) => check_dpdk_loop(output, text, sources),
        OutputSpec::Pcap(_) | OutputSpec::Folder(_) => Ok(()),
    }
}

/// The device itself, or an interface of the kernel that one of its arguments names
/// (`net_af_packet0;iface=eth1`), must not be monitored.
fn check_dpdk_loop(output: &OutputSpec, text: &str, sources: &[SourceSpec]) -> Result<(), Error> {
    let mut parts = text.split(',').next().unwrap_or_default().split(';');
    let device = parts.next().unwrap_or_default();
    let of_source = |source: &&LiveSpec| source.devices().iter().any(|of_source| of_source.is_dpdk_device(device));
    if let Some(source) = sources.iter().filter_map(SourceSpec::live).find(of_source) {
        let (output, interface, source_name) = (output.to_string(), device.into(), source.to_string());
        return Err(Error::Loop { output, interface, source_name });
    }
    let interfaces = parts.filter_map(|argument| argument.split_once('=')).map(|(_, value)| value);
    interfaces.into_iter().try_for_each(|interface| check_interface(output, interface, sources))
}

fn check_interface(output: &OutputSpec, interface: &str, sources: &[SourceSpec]) -> Result<(), Error> {
    Attachment::new(&output.to_string(), interface, sources, &Arc::default(), Duration::MAX).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn egress(outputs: &[&str]) -> EgressSpec {
        let outputs = outputs.iter().map(|text| text.parse().unwrap()).collect();
        EgressSpec { outputs, balance: Balance::AddressPair }
    }

    #[test]
    fn loops_and_outputs_named_twice_are_refused() {
        let error = |egresses: &[EgressSpec]| {
            let sources = ["af_packet:lo+weir-a,queues=2", "file.pcap"];
            check(egresses, &sources.map(|source| OsString::from(source).into())).map_err(|error| error.to_string())
        };
        let refused = error(&[egress(&["pcap:-", "af_packet:lo"])]).unwrap_err();
        let expected =
            "af_packet:lo: this is a loop: its packets leave through lo, which af_packet:lo+weir-a,queues=2 monitors";
        assert!(refused.starts_with(expected), "{refused}");
        assert!(error(&[egress(&["af_packet:weir-a"])]).is_err());
        assert!(error(&[egress(&["dpdk:net_af_packet0;iface=weir-a"])]).is_err());
        assert_eq!(error(&[egress(&["dpdk:net_af_packet0;iface=weir-b"])]), Ok(()));
        let of_dpdk =
            |device: &str| check(&[egress(&[device])], &[OsString::from("dpdk:net_ring0,queues=2").into()]).is_err();
        assert_eq!(["dpdk:net_ring0", "dpdk:net_ring0;x=y,core=1", "dpdk:net_ring1"].map(of_dpdk), [true, true, false]);
        let twice = ["pcap:x: it is named twice; leave one of them out"; 2].map(|text| Err(text.to_owned()));
        assert_eq!(
            [error(&[egress(&["pcap:x", "pcap:x"])]), error(&[egress(&["pcap:x"]), egress(&["pcap:x"])])],
            twice
        );
        assert_eq!(error(&[egress(&["af_packet:weir-b"]), egress(&["af_packet:weir-b", "pcap:-"])]), Ok(()));
    }
}
