//! Errors of models and topologies.

use thiserror::Error;

/// Why there is no model or no prediction.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PredictError {
    /// A run cannot be fitted.
    #[error("{0}")]
    Fit(String),
    /// A model is unusable.
    #[error("model {name}: {message}")]
    Model {
        /// File or name of the model.
        name: String,
        /// Why.
        message: String,
    },
    /// The topology is wrong.
    #[error("{place}: {message}")]
    Topology {
        /// Table or line of the file.
        place: String,
        /// Why, and what would be right.
        message: String,
    },
}

impl PredictError {
    /// An error in the topology.
    pub(crate) fn topology(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Topology { place: place.into(), message: message.into() }
    }
}
