//! The plots of a report as SVG: retransmissions, round-trip times, sizes.

use crate::connection::{Connection, payload_bytes};
use crate::histogram::Histogram;
use crate::report::CaptureReport;
use weir_plot::{Axis, bar_chart, scatter_plot};
use weir_text::units;

impl CaptureReport {
    /// The names of all plots.
    pub const PLOTS: [&str; 3] = ["retransmitted", "round-trips", "sizes"];

    /// The name and the `<svg>` element of each plot.
    pub fn plots(&self) -> Vec<(&'static str, String)> {
        let [retransmitted, round_trips, sizes] = Self::PLOTS;
        let histograms = [(retransmitted, self.retransmission_histogram()), (round_trips, self.rtt_histogram())];
        let bars = histograms.into_iter().filter_map(|(name, histogram)| {
            let Histogram { title, axis, bins, series } = histogram?;
            Some((name, bar_chart(&title, axis, &bins, &series)))
        });
        bars.chain(scatter(&self.connections).map(|plot| (sizes, plot))).collect()
    }
}

/// Plots payload and share of retransmitted segments of every connection. `None` if none has
/// payload.
fn scatter(connections: &[Connection]) -> Option<String> {
    let octets = |connection: &Connection| connection.sum(payload_bytes);
    let greatest = connections.iter().map(octets).max().filter(|&greatest| greatest > 0)?;
    let powers = (greatest as f64).log10().ceil().max(1.0) as u32;
    let label = |power| match power {
        0 => "0, 1".into(),
        _ => units::short(10_u64.saturating_pow(power)).replace(".00", "").replace(".0", ""),
    };
    let sizes = (0..=powers).map(|power| (10_f64.powi(power as i32), label(power)));
    let shares = [(1e-4, "0.01 %"), (1e-3, "0.1 %"), (0.01, "1 %"), (0.1, "10 %"), (1.0, "100 %")];
    let axes = [
        Axis::powers("payload, octets", sizes.collect()),
        Axis::powers("", shares.map(|(share, label)| (share, label.into())).into()).with_zero("none"),
    ];
    let points = connections.iter().map(|connection| {
        let x = octets(connection).max(1) as f64;
        (x, connection.retransmitted_share(), connection)
    });
    let title = "Payload and share of retransmitted segments, by connection";
    Some(scatter_plot(title, axes, points, |connection| connection.name()))
}
