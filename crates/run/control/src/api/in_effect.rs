//! What a probe runs with: `/rules`, `/lists`, `/timeouts`, `/doctor`.

use super::answer::{Answer, Failure, answer, json_text, no_rules, shared};
use super::served::{Api, HasToken};
use crate::doctor::DoctorFindings;
use crate::in_effect::{Lists, RulesState, Timeouts};
use crate::report::Snapshot;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use std::sync::{Arc, Weak};

/// The rules in effect: the content of the file, and what each rule has done since the start
#[utoipa::path(get, path = "/rules", responses(
    (status = 200, description = "The rules", body = RulesState),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "The probe has no rules, or none is running", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
pub(super) async fn rules(State(api): State<Arc<Api>>, Extension(HasToken(has_token)): Extension<HasToken>) -> Answer {
    let snapshot = api.report().await?;
    let rules = snapshot.report.in_effect.rules.as_ref().ok_or_else(no_rules)?;
    let of_report = Arc::downgrade(&snapshot);
    let serves = |of_copy: &Weak<Snapshot>, _| of_copy.ptr_eq(&of_report);
    let make = || (of_report.clone(), json_text(&rules.state(&snapshot.report.ledger)));
    Ok(shared(api.rules.get(&api.memory, has_token, serves, make)))
}

/// Files of networks, places and tags in effect
#[utoipa::path(get, path = "/lists", responses(
    (status = 200, description = "The files", body = Lists),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
pub(super) async fn lists(State(api): State<Arc<Api>>) -> Answer {
    let snapshot = api.report().await?;
    Ok(answer(StatusCode::OK, Lists { lists: snapshot.report.in_effect.lists.clone() }))
}

/// Timeouts in effect
#[utoipa::path(get, path = "/timeouts", responses(
    (status = 200, description = "The timeouts", body = Timeouts),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
    (status = 503, description = "The probe does not report", body = Failure),
))]
pub(super) async fn timeouts(State(api): State<Arc<Api>>) -> Answer {
    Ok(answer(StatusCode::OK, api.report().await?.report.in_effect.timeouts))
}

/// What weir doctor found about the machine and the interfaces of the probe when it started
#[utoipa::path(get, path = "/doctor", responses(
    (status = 200, description = "The findings", body = DoctorFindings),
    (status = 400, description = "The path has no parameters", body = Failure),
    (status = 409, description = "No probe is running", body = Failure),
))]
pub(super) async fn doctor(State(api): State<Arc<Api>>) -> Answer {
    Ok(answer(StatusCode::OK, &api.probe()?.doctor))
}
