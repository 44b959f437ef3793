//! Predicts end-to-end delays over relays, and chooses the relays (the conclusion of Miya 2020).
//!
//! [`fit_relay`] turns the trials of a relay run into a [`NodeModel`]: node delay as a function of
//! packet size, packet rate and CPU load, with intervals, and the distribution around it.
//! [`Network`] is a topology whose nodes and links have such models. [`predict`] convolves them
//! along paths, chooses a path for each flow that meets the deadline with the requested
//! probability, and keeps every node and link below its capacity. `docs/predict.md` states the
//! assumptions.
//!
//! This crate opens no files and reads no clock.

#![forbid(unsafe_code)]

mod candidates;
mod component;
mod delay_fit;
mod delay_grid;
mod error;
mod fit;
mod moments;
mod network;
mod node_model;
mod path_delay;
mod placement;
mod prediction;
mod quantile_function;
mod shortest;
mod text;
mod topology;
mod trial;
mod usage;
mod waiting;

pub use delay_fit::{DelayFit, Estimate, Range};
pub use delay_grid::{BINS, DelayGrid};
pub use error::PredictError;
pub use fit::{FitSource, fit_relay};
pub use network::{Flow, InlineModel, Link, Network, NetworkBuilder, Relay};
pub use node_model::{Cost, CostSource, LinkModel, ModeModel, NodeModel};
pub use placement::{Request, predict};
pub use prediction::{
    Extrapolation, FlowPrediction, FlowState, LinkUse, NodeUse, PathPrediction, Prediction,
};
pub use quantile_function::QuantileFunction;
pub use topology::TopologyFile;
pub use trial::{PacketDelays, RelayTrial};
pub use waiting::waiting_time;
