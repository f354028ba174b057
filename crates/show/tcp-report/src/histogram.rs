//! Histograms over connections, with logarithmic bins.

use crate::report::CaptureReport;

/// Connections by bin, of one series or more.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// What it shows.
    pub title: String,
    /// What the bins are.
    pub axis: &'static str,
    /// The names of the bins, in ascending order.
    pub bins: Vec<String>,
    /// The name of each series, and its count for each bin.
    pub series: Vec<(&'static str, Vec<u64>)>,
}

/// With fewer values, the text report has no histogram.
const FEWEST_VALUES: u64 = 5;
/// Bins of shares by their upper ends. The bin of 0 comes before them.
const SHARES: [(f64, &str); 7] = [
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
        let mut counts = vec![0; SHARES.len() + 1];
        let connections = self.connections.iter();
        for connection in connections.filter(|connection| connection.total_packets() >= self.options.min_packets) {
            let share = connection.retransmitted_share();
            let bin = SHARES.iter().position(|&(end, _)| share < end).unwrap_or(SHARES.len() - 1);
            counts[if share == 0.0 { 0 } else { bin + 1 }] += 1;
        }
        let title = match self.options.min_packets {
            0..=1 => "Retransmitted segments".into(),
            least => format!("Retransmitted segments, connections of {least} packets or more"),
        };
        let bins = std::iter::once("none").chain(SHARES.iter().map(|&(_, name)| name)).map(String::from).collect();
        let is_empty = counts.iter().all(|&count| count == 0);
        let series = vec![("connections", counts)];
        (!is_empty).then_some(Histogram { title, axis: "share per connection", bins, series })
    }

    /// Connections by round-trip time of the handshake, on both sides of the capture point. `None`
    /// if no time is known.
    pub fn rtt_histogram(&self) -> Option<Histogram> {
        let bin = |ns: u64| TIMES_US.iter().position(|&(end, _)| ns / 1000 < end).unwrap_or(TIMES_US.len() - 1);
        let [client, server] = self.totals.handshake_rtts_ns.each_ref().map(|times| {
            let mut counts = vec![0; TIMES_US.len()];
            times.iter().for_each(|&ns| counts[bin(ns)] += 1);
            counts
        });
        let has_values = |bin: &usize| client[*bin] + server[*bin] > 0;
        let shown = (0..TIMES_US.len()).find(has_values)?..=(0..TIMES_US.len()).rfind(has_values)?;
        Some(Histogram {
            title: "Round-trip time of the handshake".into(),
            axis: "connections by time",
            bins: TIMES_US[shown.clone()].iter().map(|(_, name)| name.to_string()).collect(),
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
            bins: vec!["30–100 ms".into(), "100–300 ms".into()],
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
