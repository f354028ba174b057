mod bypass;
mod egress;
mod overrides;
mod recorder;
mod rules;
