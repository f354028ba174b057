//! How something is distributed over connections: logarithmic steps, a number for each.

use crate::connection::Connection;
use crate::totals::Totals;

/// Counts by step, of one series or more.
#[derive(Clone, Debug)]
pub struct Histogram {
    pub title: String,
    /// What is counted, and below it the steps.
    pub axis: &'static str,
    pub steps: Vec<String>,
    /// A name, and a count for each step.
    pub series: Vec<(&'static str, Vec<u64>)>,
}

/// Fewer values than this are no distribution.
const FEW: u64 = 5;
/// Shares of segments sent again: upper ends of the steps, above none at all.
const SHARES: [(f64, &str); 7] = [
    (0.001, "< 0.1 %"),
    (0.003, "0.1–0.3 %"),
    (0.01, "0.3–1 %"),
    (0.03, "1–3 %"),
    (0.1, "3–10 %"),
    (0.3, "10–30 %"),
    (f64::INFINITY, "30–100 %"),
];
/// Round trips, µs: upper ends of the steps.
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

/// Share of segments sent again, of connections of so many packets at least. `None` if there is no such connection.
pub fn retransmitted(connections: &[Connection], fewest: u64) -> Option<Histogram> {
    let mut counts = vec![0; SHARES.len() + 1];
    for connection in connections.iter().filter(|connection| connection.all_packets() >= fewest) {
        let share = connection.retransmitted_share();
        let step = SHARES.iter().position(|&(end, _)| share < end).unwrap_or(SHARES.len() - 1);
        counts[if share == 0.0 { 0 } else { step + 1 }] += 1;
    }
    let title = match fewest {
        0..=1 => "Segments sent again".into(),
        _ => format!("Segments sent again, connections of {fewest} packets or more"),
    };
    let steps = std::iter::once("none".into()).chain(SHARES.iter().map(|(_, name)| name.to_string())).collect();
    let some = counts.iter().any(|&count| count > 0);
    some.then(|| Histogram { title, axis: "share per connection", steps, series: vec![("connections", counts)] })
}

/// Round trips of the handshake, both sides. `None` if none is known.
pub fn round_trips(totals: &Totals) -> Option<Histogram> {
    let step = |ns: u64| TIMES_US.iter().position(|&(end, _)| ns / 1000 < end).unwrap_or(TIMES_US.len() - 1);
    let [clients, servers] = totals.round_trips.each_ref().map(|times| {
        let mut counts = vec![0; TIMES_US.len()];
        times.iter().for_each(|&ns| counts[step(ns)] += 1);
        counts
    });
    let some = |at: &usize| clients[*at] + servers[*at] > 0;
    let (first, last) = ((0..TIMES_US.len()).find(some)?, (0..TIMES_US.len()).rfind(some)?);
    Some(Histogram {
        title: "Round trip of the handshake".into(),
        axis: "connections by time",
        steps: TIMES_US[first..=last].iter().map(|(_, name)| name.to_string()).collect(),
        series: vec![("server side", servers[first..=last].to_vec()), ("client side", clients[first..=last].to_vec())],
    })
}

impl Histogram {
    /// The largest count.
    pub fn most(&self) -> u64 {
        self.series.iter().flat_map(|(_, counts)| counts).copied().max().unwrap_or(0)
    }

    /// Whether there is enough to speak of a distribution.
    pub fn is_one(&self) -> bool {
        self.series.iter().any(|(_, counts)| counts.iter().sum::<u64>() >= FEW)
    }

    /// As lines of at most 80 characters.
    pub fn text(&self) -> String {
        const LABEL: usize = 12;
        let most = self.most().max(1);
        let digits = most.to_string().len();
        // Each series has a bar and its number, and a gap of 2 before it.
        let bar = (80 - LABEL) / self.series.len() - digits - 4;
        let mut text = format!("{}: {}\n", self.title, self.axis);
        if self.series.len() > 1 {
            let mut line = format!("{:LABEL$}", "");
            for (name, _) in &self.series {
                line += &format!("  {name:<width$}", width = bar + digits + 2);
            }
            text += line.trim_end();
            text.push('\n');
        }
        for (at, step) in self.steps.iter().enumerate() {
            let mut line = format!("{step:>LABEL$}");
            for (_, counts) in &self.series {
                let drawn = blocks(counts[at], most, bar);
                line += &format!("  {:>digits$} {drawn:<bar$} ", counts[at]);
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// A bar in eighths of a character. What is not nothing has one at least.
fn blocks(count: u64, most: u64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (u128::from(count) * 8 * width as u128).div_ceil(u128::from(most)) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_80_columns_and_no_count_is_invisible() {
        let histogram = Histogram {
            title: "title".into(),
            axis: "axis",
            steps: vec!["30–100 ms".into(), "100–300 ms".into()],
            series: vec![("server side", vec![1, 1_000_000]), ("client side", vec![0, 10])],
        };
        let text = histogram.text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches('▏').count(), 2, "{text}");
    }

    #[test]
    fn bars_are_proportional() {
        assert_eq!(blocks(0, 8, 4), "");
        assert_eq!(blocks(8, 8, 4), "████");
        assert_eq!(blocks(3, 8, 4), "█▌");
    }
}
