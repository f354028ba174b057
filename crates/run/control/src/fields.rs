//! The catalogue of fields, for clients that show flows.

use serde::Serialize;
use utoipa::ToSchema;
use weir_fields::{Column, Origin, Profile, columns};

/// All fields of flows.
#[derive(Serialize, ToSchema)]
pub struct Fields {
    /// In the order of `fields=all`.
    fields: Vec<Field>,
}

/// A field.
#[derive(Serialize, ToSchema)]
struct Field {
    /// Its name.
    name: &'static str,
    /// What its values are, as in `weir help fields`.
    r#type: &'static str,
    /// Its unit; empty without one.
    unit: &'static str,
    /// What it means.
    meaning: &'static str,
    /// What computes it: `meter`, `tcp`, `inspection` or `enrichment`.
    origin: &'static str,
    /// Whether flows have it unless `fields` is given.
    basic: bool,
}

impl Fields {
    /// They.
    pub fn all() -> Self {
        Self { fields: columns().iter().map(Field::of).collect() }
    }
}

impl Field {
    fn of(column: &Column) -> Self {
        let origin = match column.properties.origin {
            Origin::Meter => "meter",
            Origin::TcpAnalysis => "tcp",
            Origin::Inspection => "inspection",
            Origin::Enrichment => "enrichment",
        };
        Self {
            name: column.name,
            r#type: column.kind.name(),
            unit: column.unit,
            meaning: column.description,
            origin,
            basic: column.is_in(Profile::Basic),
        }
    }
}
