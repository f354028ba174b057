//! Rules that no packet reaches, as far as their text shows it (docs/rules.md).

use crate::error::Problem;
use crate::rules::{Level, Rule, Rules};
use std::collections::HashMap;
use weir_query::{Effort, Expression};

/// Comparisons of conditions for a file: about a second.
const EFFORT: u32 = 20_000_000;

/// The lines of rules that no packet reaches, and why.
pub(crate) fn unreachable(rules: &Rules) -> Vec<(usize, Problem)> {
    let mut effort = Effort(EFFORT);
    let mut found = Vec::new();
    // All rules of earlier levels that drop what they match, whatever other rules say.
    let mut final_drops: Vec<&Rule> = Vec::new();
    for level in Level::ALL {
        let of_level: Vec<&Rule> = rules.rules.iter().filter(|rule| rule.level == level).collect();
        let mut texts: HashMap<Option<&str>, &Rule> = HashMap::new();
        for (at, rule) in of_level.iter().enumerate() {
            // Equal conditions are found in any number of rules.
            let first = texts.entry(rule.condition.as_ref().map(Expression::text)).or_insert(rule).line;
            let equal = Some(first).filter(|&line| line != rule.line);
            let mut covering =
                |rules: &[&Rule]| rules.iter().find(|other| covers(other, rule, &mut effort)).map(|of| of.line);
            let problem = match equal.or_else(|| covering(&of_level[..at])) {
                Some(line) => Some(Problem::Unreachable(line)),
                None => covering(&final_drops).map(Problem::Dropped),
            };
            let never = |condition: &Expression| condition.contradicts_itself(&mut effort);
            let problem = problem.or_else(|| rule.condition.as_ref().is_some_and(never).then_some(Problem::Never));
            found.extend(problem.map(|problem| (rule.line, problem)));
        }
        // A rule behind one that does not drop is perhaps not asked.
        final_drops.extend(of_level.into_iter().take_while(|rule| rule.settings.forward == Some(false)));
    }
    found
}

/// Whether a rule matches whatever the other one matches.
fn covers(rule: &Rule, other: &Rule, effort: &mut Effort) -> bool {
    match (&rule.condition, &other.condition) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(rule), Some(other)) => other.implies(rule, effort),
    }
}
