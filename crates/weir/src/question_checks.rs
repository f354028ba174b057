//! Checks of a question to stored flows: whether they have the fields that it names, and what it can be sorted by.
//!
//! Input: the fields that the records have, and parts of a question. Output: the sentence that says which parameter names
//! something that they do not have.

use weir_control::StoredError;
use weir_fields::{Column, field, is_of_transactions};
use weir_query::{CountField, Expression, GroupField, RecordOrder, View, ViewSettings};

/// What the records of a question have.
pub struct Known {
    columns: Vec<&'static Column>,
    /// Those of a store have more columns, which are 0 in transactions.
    is_of_transactions: bool,
}

impl Known {
    /// `columns`: those that are stored with all of the records.
    pub fn new(columns: Vec<&'static Column>, is_of_transactions: bool) -> Self {
        Self { columns, is_of_transactions }
    }

    fn has(&self, column: &'static Column) -> bool {
        self.columns.contains(&column) && (!self.is_of_transactions || is_of_transactions(column))
    }

    /// Checks that the records have the fields of an expression.
    ///
    /// # Errors
    /// They do not have one of them.
    pub fn check_condition(&self, expression: Option<&Expression>) -> Result<(), StoredError> {
        let mut compared = expression.into_iter().flat_map(Expression::fields);
        compared.try_for_each(|name| self.check("where", name))
    }

    /// The columns that the records have; others are left out.
    ///
    /// # Errors
    /// They have none of them, or not the field of the order.
    pub fn stored_columns(
        &self,
        order: Option<&RecordOrder>,
        columns: &[&'static Column],
    ) -> Result<Vec<&'static Column>, StoredError> {
        order.into_iter().try_for_each(|order| self.check("sort", order.name()))?;
        let stored: Vec<_> = columns.iter().copied().filter(|column| self.has(column)).collect();
        match columns.first().filter(|_| stored.is_empty()) {
            Some(column) => Err(self.missing("fields", column)),
            None => Ok(stored),
        }
    }

    /// The settings of sums with the numbers that the records have.
    ///
    /// # Errors
    /// They do not have the field of a group or of a count, or the order is not possible.
    pub fn checked_sums(&self, mut settings: ViewSettings) -> Result<ViewSettings, StoredError> {
        settings.fields.iter().try_for_each(|field| self.check("by", GroupField::name(field)))?;
        let mut counted = settings.counts.iter().flat_map(|count| CountField::names_in(count, &settings.fields));
        counted.try_for_each(|name| self.check("count", name))?;
        let known: Vec<_> = self.columns.iter().copied().filter(|column| self.has(column)).collect();
        settings.set_known(&known);
        View::new(settings.clone()).map_err(invalid_order)?;
        Ok(settings)
    }

    fn check(&self, place: &str, name: &str) -> Result<(), StoredError> {
        let missing = field(name).map(|field| field.column()).filter(|column| !self.has(column));
        missing.map_or(Ok(()), |column| Err(self.missing(place, column)))
    }

    fn missing(&self, place: &str, column: &Column) -> StoredError {
        let name = column.name;
        StoredError::Question(if self.is_of_transactions && !is_of_transactions(column) {
            format!("{place}: transactions do not have the field {name}: it is one of flows")
        } else {
            format!("{place}: the stored flows of this time do not all have the field {name}")
        })
    }
}

/// That something cannot be sorted as a question says.
pub fn invalid_order(error: impl std::fmt::Display) -> StoredError {
    StoredError::Question(format!("sort: {error}"))
}
