//! Histograms over connections, with logarithmic bins.

use crate::connection::Connection;
use crate::report::CaptureReport;

/// Connections by bin, of one series or more.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// What it shows.
    pub title: String,
    /// What the bins are.
    pub axis: &'static str,
    /// The names of the bins, in ascending order.
    pub bins: Vec<&'static str>,
    /// The name of each series, and its count for each bin.
    pub series: Vec<(&'static str, Vec<u64>)>,
}

/// With fewer values, the text report has no histogram.
const FEWEST_VALUES: u64 = 5;
/// Bins of shares by their upper ends.
const SHARES: [(f64, &str); 8] = [
    (f64::MIN_POSITIVE, "none"),
    (0.001, "< 0.1 %"),
    (0.003, "0.1–0.3 %"),
    (0.01, "0.3–1 %"),
    (0.03, "1–3 %"),
    (0.1, "3–10 %"),
    (0.3, "10–30 %"),
    (f64::INFINITY, "30–100 %"),
];
/// Bins of round-trip times by their upper ends, µs.
const TIMES_US: [(u64, &str); 11] = [
    (30, "< 30 µs"),
    (100, "30–100 µs"),
    (300, "100–300 µs"),
    (1000, "0.3–1 ms"),
    (3000, "1–3 ms"),
    (10_000, "3–10 ms"),
    (30_000, "10–30 ms"),
    (100_000, "30–100 ms"),
    (300_000, "100–300 ms"),
    (1_000_000, "0.3–1 s"),
    (u64::MAX, "> 1 s"),
];

impl CaptureReport {
    /// Connections by share of retransmitted segments. `None` if no connection has enough packets.
    pub fn retransmission_histogram(&self) -> Option<Histogram> {
        let connections = self.connections.iter();
        let connections = connections.filter(|connection| connection.total_packets() >= self.options.min_packets);
        let counts = count(&SHARES, connections.map(Connection::retransmitted_share));
        let title = match self.options.min_packets {
            0..=1 => "Retransmitted segments".into(),
            least => format!("Retransmitted segments, connections of {least} packets or more"),
        };
        let is_empty = counts.iter().all(|&count| count == 0);
        let (bins, series) = (SHARES.map(|(_, name)| name).into(), vec![("connections", counts)]);
        (!is_empty).then_some(Histogram { title, axis: "share per connection", bins, series })
    }

    /// Connections by round-trip time of the handshake, on both sides of the capture point. `None`
    /// if no time is known.
    pub fn rtt_histogram(&self) -> Option<Histogram> {
        let times = self.totals.handshake_rtts_ns.each_ref();
        let [client, server] = times.map(|times| count(&TIMES_US, times.iter().map(|ns| ns / 1000)));
        let has_values = |bin: &usize| client[*bin] + server[*bin] > 0;
        let shown = (0..TIMES_US.len()).find(has_values)?..=(0..TIMES_US.len()).rfind(has_values)?;
        Some(Histogram {
            title: "Round-trip time of the handshake".into(),
            axis: "connections by time",
            bins: TIMES_US[shown.clone()].iter().map(|&(_, name)| name).collect(),
            series: vec![("server side", server[shown.clone()].to_vec()), ("client side", client[shown].to_vec())],
        })
    }
}

impl Histogram {
    /// Whether it has enough values to show a distribution.
    pub(crate) fn is_meaningful(&self) -> bool {
        self.series.iter().any(|(_, counts)| counts.iter().sum::<u64>() >= FEWEST_VALUES)
    }

    /// Bars of characters, in lines of at most 80.
    pub(crate) fn text(&self) -> String {
        const LABEL: usize = 12;
        let greatest = self.series.iter().flat_map(|(_, counts)| counts).copied().max().unwrap_or(0).max(1);
        let digits = greatest.to_string().len();
        // Each series has a gap of 2, a number, a space, a bar and a space.
        let bar_width = (80 - LABEL) / self.series.len() - digits - 4;
        let mut text = format!("{}: {}\n", self.title, self.axis);
        if self.series.len() > 1 {
            let names = self.series.iter().map(|(name, _)| format!("  {name:<width$}", width = bar_width + digits + 2));
            text += format!("{:LABEL$}{}", "", names.collect::<String>()).trim_end();
            text.push('\n');
        }
        for (index, bin) in self.bins.iter().enumerate() {
            let mut line = format!("{bin:>LABEL$}");
            for (_, counts) in &self.series {
                let bar = bar(counts[index], greatest, bar_width);
                line += &format!("  {:>digits$} {bar:<bar_width$} ", counts[index]);
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// The number of values in each bin.
fn count<T: PartialOrd>(bins: &[(T, &str)], values: impl Iterator<Item = T>) -> Vec<u64> {
    let mut counts = vec![0; bins.len()];
    values.for_each(|value| counts[bins.partition_point(|(end, _)| *end <= value)] += 1);
    counts
}

/// A bar with a resolution of an eighth of a character. The bar of 1 is never empty.
fn bar(count: u64, greatest: u64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (u128::from(count) * 8 * width as u128).div_ceil(u128::from(greatest)) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_80_columns_and_every_count_above_0_has_a_bar() {
        let histogram = Histogram {
            title: "title".into(),
            axis: "axis",
            bins: vec!["30–100 ms", "100–300 ms"],
            series: vec![("server side", vec![1, 1_000_000]), ("client side", vec![0, 10])],
        };
        let text = histogram.text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches('▏').count(), 2, "{text}");
    }

    #[test]
    fn bars_are_proportional() {
        assert_eq!(bar(0, 8, 4), "");
        assert_eq!(bar(8, 8, 4), "████");
        assert_eq!(bar(3, 8, 4), "█▌");
    }
}
