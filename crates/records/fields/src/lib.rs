//! The catalogue of the fields of flow records.
//!
//! An entry defines a field once: name, unit, sentence, how its value is read from a
//! [`FlowRecord`](weir_flow::FlowRecord), its information elements, and what else a part of Weir has
//! to know of it. The encoders of JSON, CSV, IPFIX and NetFlow v9, expressions, views, rules and the
//! tables of docs/fields.md follow from it.
//! Not done here: encoding, and choosing the elements of templates.
#![forbid(unsafe_code)]

mod bounds;
mod catalogue;
mod column;
mod community_id;
mod element;
mod entry;
mod field;
mod first_answer;
mod omitted;
mod page;
mod restore;
mod restored;
mod select;
mod selection;
mod stored_figures;
mod stored_rows;
mod sum_field;
mod tcp_failure;
mod transactions;
mod value;
mod words;

pub use bounds::Bounds;
pub use catalogue::{
    elements, elements_of, elements_of_records, field_elements, fields, template_field_elements, template_fields,
    type_and_code, visit_fields, visit_template_fields,
};
pub use column::{Anonymisation, Column, ColumnKind, Known, Origin, Profile, Properties, Requirement};
pub use community_id::{community_id, community_id_has_ports};
pub use element::{
    DataType, Element, Format, NTOP_ENTERPRISE, REVERSE_ENTERPRISE, Semantics, Units, VARIABLE, WEIR_ENTERPRISE,
    WEIR_FIRST_NUMBER, WEIR_REVERSE_BIT,
};
pub use entry::{DirectionView, Entry, StaticField, Visitor};
pub use field::{
    FIRST_EPHEMERAL_PORT, Field, Kind, Read, duration_ns, field, name_of_heading, near_names, of_first,
    server_responses, summed_rtt_ns, view_field, words,
};
pub use first_answer::{FIRST_ANSWERS, FirstAnswer, number_of_all};
pub use omitted::{columns_of_omitted, restore_omitted};
pub use page::{profile_names, profiles};
pub use restore::StoredValue;
pub use restored::Restored;
pub use select::{InvalidFields, select_columns};
pub use selection::{UnknownColumn, column, columns, default_columns, end_time, start_time};
pub use stored_figures::{FigureColumns, Figures, RowFigures, StoredFigures};
pub use stored_rows::{RowSums, Rows, StoredColumn, StoredRows, StoredText};
pub use sum_field::{Amount, Grain, InvalidSumField, SumField, SumReader};
pub use tcp_failure::TcpFailure;
pub use transactions::{is_of_transactions, select_transaction_columns, transaction_columns};
pub use value::{FieldValue, protocol_name};
pub use words::Words;
