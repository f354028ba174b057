//! Checks of a question to stored flows: whether they have the fields that it names, and what it can be sorted by.
//!
//! Input: the fields that flows have, and parts of a question. Output: the sentence that says which parameter names
//! something that is not stored.

use weir_control::StoredError;
use weir_fields::{Column, field, is_of_transactions};
use weir_query::{CountField, Expression, GroupField, RecordOrder, View, ViewSettings};

/// Checks that flows have the fields of an expression.
///
/// # Errors
/// They do not have one of them.
pub fn check_condition(known: &[&'static Column], expression: Option<&Expression>) -> Result<(), StoredError> {
    let mut compared = expression.into_iter().flat_map(Expression::fields);
    compared.try_for_each(|name| check(known, "where", name))
}

/// Checks that transactions have the fields of an expression: records of a store have more, which are 0 in those of
/// transactions.
///
/// # Errors
/// They do not have one of them.
pub fn check_condition_of_transactions(expression: Option<&Expression>) -> Result<(), StoredError> {
    let of_flows = expression.into_iter().flat_map(Expression::fields);
    let of_flows = of_flows.filter_map(field).find(|field| !is_of_transactions(field.column()));
    of_flows.map_or(Ok(()), |field| {
        let name = field.column().name;
        Err(StoredError::Question(format!("where: transactions do not have the field {name}: it is one of flows")))
    })
}

/// The columns of flows that are stored; those that are not are left out.
///
/// # Errors
/// None of them is, or flows do not have the field of the order.
pub fn stored_columns(
    known: &[&'static Column],
    order: Option<&RecordOrder>,
    columns: &[&'static Column],
) -> Result<Vec<&'static Column>, StoredError> {
    order.into_iter().try_for_each(|order| check(known, "sort", order.name()))?;
    let stored: Vec<_> = columns.iter().copied().filter(|column| known.contains(column)).collect();
    match columns.first().filter(|_| stored.is_empty()) {
        Some(column) => Err(not_stored("fields", column.name)),
        None => Ok(stored),
    }
}

/// The settings of sums with the numbers that the flows have.
///
/// # Errors
/// Flows do not have the field of a group or of a count, or the order is not possible.
pub fn checked_sums(known: &[&'static Column], mut settings: ViewSettings) -> Result<ViewSettings, StoredError> {
    settings.fields.iter().try_for_each(|field| check(known, "by", GroupField::name(field)))?;
    let mut counted = settings.counts.iter().flat_map(|count| CountField::names_in(count, &settings.fields));
    counted.try_for_each(|name| check(known, "count", name))?;
    settings.set_known(known);
    View::new(settings.clone()).map_err(invalid_order)?;
    Ok(settings)
}

/// That something cannot be sorted as a question says.
pub fn invalid_order(error: impl std::fmt::Display) -> StoredError {
    StoredError::Question(format!("sort: {error}"))
}

fn check(known: &[&'static Column], place: &str, name: &str) -> Result<(), StoredError> {
    match field(name) {
        Some(of) if !known.contains(&of.column()) => Err(not_stored(place, name)),
        _ => Ok(()),
    }
}

fn not_stored(place: &str, name: &str) -> StoredError {
    StoredError::Question(format!("{place}: the stored flows of this time do not all have the field {name}"))
}
