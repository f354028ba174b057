//! Axes: where a value lies, and which values have a tick.

use weir_text::units;

/// Part of an axis that is reserved for 0 where a logarithmic axis shows it.
const ZERO_PART: f64 = 0.12;

/// An axis with its title, ticks and scale.
pub struct Axis {
    pub(crate) title: String,
    pub(crate) ticks: Vec<(f64, String)>,
    logarithmic: bool,
    least: f64,
    greatest: f64,
    /// Part of the axis below `least`, for 0.
    zero_part: f64,
}

impl Axis {
    /// A linear axis from 0 to a round number at or above the greatest value.
    pub fn linear(title: &str, greatest: f64) -> Self {
        let power = 10_f64.powf((greatest.max(1e-9) / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| greatest / step <= 6.0);
        let step = step.unwrap_or(power * 10.0);
        let steps = (greatest / step).ceil().max(1.0);
        let ticks = (0..=steps as usize).map(|at| at as f64 * step).map(|value| (value, units::number(value)));
        Self::new(title, ticks.collect(), false, [0.0, steps * step])
    }

    /// A logarithmic axis with these ticks, from the first to the last. Smaller values are drawn at
    /// the first.
    pub fn powers(title: &str, ticks: Vec<(f64, String)>) -> Self {
        let ends = [ticks.first(), ticks.last()].map(|tick| tick.map_or(1.0, |&(value, _)| value));
        Self::new(title, ticks, true, ends)
    }

    /// A logarithmic axis with a tick at each of the values.
    pub fn values(title: &str, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        values.dedup();
        Self::powers(title, values.into_iter().map(|value| (value, short(value))).collect())
    }

    fn new(title: &str, ticks: Vec<(f64, String)>, logarithmic: bool, [least, greatest]: [f64; 2]) -> Self {
        Self { title: title.into(), ticks, logarithmic, least, greatest, zero_part: 0.0 }
    }

    /// Reserves a place below the smallest value for 0.
    #[must_use]
    pub fn with_zero(mut self, label: &str) -> Self {
        self.ticks.insert(0, (0.0, label.into()));
        self.zero_part = ZERO_PART;
        self
    }

    /// The place of a value, from 0 at the beginning of the axis to 1 at its end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        if value <= 0.0 && self.zero_part > 0.0 {
            return self.zero_part / 3.0;
        }
        let scale = |value: f64| if self.logarithmic { value.max(self.least).ln() } else { value };
        let span = (scale(self.greatest) - scale(self.least)).max(1e-9);
        self.zero_part + (1.0 - self.zero_part) * (scale(value) - scale(self.least)) / span
    }
}

/// A number for a tick: `131k`, `10M`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", units::number(v / 1e6)),
        v if v >= 1e4 => format!("{}k", (v / 1e3).round()),
        v => units::number(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_ends_at_a_round_number_above_the_values() {
        let axis = Axis::linear("", 43.0);
        assert_eq!(axis.ticks.last(), Some(&(50.0, "50".into())));
        assert_eq!((axis.place(0.0), axis.place(50.0)), (0.0, 1.0));
    }

    #[test]
    fn a_logarithmic_axis_has_equal_distances_between_equal_ratios() {
        let axis = Axis::values("", vec![100.0, 1.0, 1.0]);
        assert!((axis.place(10.0) - 0.5).abs() < 1e-9);
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| &label[..]).collect();
        assert_eq!(labels, ["1", "100"]);
    }

    #[test]
    fn zero_has_a_place_of_its_own_below_the_smallest_value() {
        let axis = Axis::powers("", vec![(1e-4, "0.01 %".into()), (1.0, "100 %".into())]).with_zero("none");
        assert!(axis.place(0.0) < axis.place(1e-4) && axis.place(1e-4) == axis.place(1e-9));
        assert_eq!(axis.place(1.0), 1.0);
    }
}
