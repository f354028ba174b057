//! Splits bidirectional flows into unidirectional flows.

use std::sync::Arc;
use weir_flow::{Direction, FlowRecord};

/// The directions of a flow with packets, and at least one; true if it is the reverse direction.
pub(crate) fn directions(flow: &FlowRecord) -> impl Iterator<Item = (&Direction, bool)> {
    let has_reverse = flow.reverse.packets > 0;
    let has_forward = flow.forward.packets > 0 || !has_reverse;
    let forward = has_forward.then_some((&flow.forward, false));
    forward.into_iter().chain(has_reverse.then_some((&flow.reverse, true)))
}

/// Splits a flow into unidirectional flows, one for each of its [`directions`].
pub(crate) fn unidirectional(flow: &FlowRecord) -> impl Iterator<Item = (FlowRecord, bool)> {
    directions(flow).map(|(&direction, is_reverse)| {
        let mut part = FlowRecord { forward: direction, reverse: Direction::default(), ..flow.clone() };
        if is_reverse {
            std::mem::swap(&mut part.source, &mut part.destination);
            std::mem::swap(&mut part.source_port, &mut part.destination_port);
            part.tcp.iter_mut().for_each(|reports| reports.reverse());
            part.places = flow.places.as_ref().map(|places| Arc::new(places.reversed()));
        }
        (part, is_reverse)
    })
}
