//! Result of a prediction; serialised as `dwell.prediction/1`.

use serde::Serialize;

dwell_units::named! {
    /// Outcome for a flow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum FlowState {
        /// The chosen path meets the deadline with the requested probability.
        Meets = "meets",
        /// No path that was examined does; the best one is chosen.
        Misses = "misses",
        /// No path joins the two nodes.
        Unreachable = "unreachable",
        /// Every path has a node or link that the flow would load above its capacity.
        AboveCapacity = "above-capacity",
    }
}

/// Parameter of a prediction outside the range that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Extrapolation {
    /// Node or link, or the first of those with the same model.
    pub on: String,
    /// Name of the model.
    pub model: String,
    /// Parameter: `size_bytes`, `rate_pps` or `load_ratio`.
    pub parameter: &'static str,
    /// Its value.
    pub value: f64,
    /// Smallest value that was measured.
    pub min: f64,
    /// Largest value that was measured.
    pub max: f64,
}

/// Predicted delay of a flow over a path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathPrediction {
    /// Nodes, from sender to receiver.
    pub nodes: Vec<String>,
    /// Number of links.
    pub hops: usize,
    /// Mean delay of packets that arrive.
    pub mean_ns: f64,
    /// Median of packets that arrive; null beyond the grid, or above capacity.
    pub p50_ns: Option<f64>,
    /// 95th percentile; null beyond the grid.
    pub p95_ns: Option<f64>,
    /// Range of the 95th percentile of a single trial, with 95 % confidence, by the differences between
    /// the trials of the models; null if one has too few.
    pub p95_low_ns: Option<f64>,
    /// Upper end of that range.
    pub p95_high_ns: Option<f64>,
    /// 99th percentile; null beyond the grid.
    pub p99_ns: Option<f64>,
    /// Probability that a packet arrives within the deadline.
    pub probability: f64,
    /// Probability that a packet is lost.
    pub loss_ratio: f64,
    /// Whether the probability is at least the requested one.
    pub meets: bool,
    /// Largest share of the capacity of a relay or link, this flow included.
    pub bottleneck_ratio: f64,
    /// Standard error of quantiles by the steps of the convolution.
    pub resolution_ns: f64,
    /// Largest possible error of quantiles by the steps of the convolution.
    pub resolution_bound_ns: f64,
    /// Parameters outside the measured range.
    pub extrapolated: Vec<Extrapolation>,
}

/// Prediction for a flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowPrediction {
    /// Name.
    pub flow: String,
    /// Sending node.
    pub from: String,
    /// Receiving node.
    pub to: String,
    /// UDP payload in bytes.
    pub size_bytes: f64,
    /// Packets per second.
    pub rate_pps: f64,
    /// Outcome.
    pub state: FlowState,
    /// Why it has no path, or no path that meets the deadline.
    pub reason: Option<String>,
    /// Chosen path; null without one.
    pub chosen: Option<PathPrediction>,
    /// Path of fewest hops, beside the same other flows; null if there is no path.
    pub fewest_hops: Option<PathPrediction>,
    /// Number of paths examined.
    pub candidates: usize,
    /// Whether no other path can meet the deadline.
    pub complete: bool,
}

/// Use of a relay by the chosen paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeUse {
    /// Node.
    pub node: String,
    /// Number of flows.
    pub flows: usize,
    /// Packets per second.
    pub rate_pps: f64,
    /// Share of its CPU capacity; null if the cost of its packets is unknown.
    pub cpu_ratio: Option<f64>,
}

/// Use of a link in one direction by the chosen paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkUse {
    /// Node that sends.
    pub from: String,
    /// Node that receives.
    pub to: String,
    /// Number of flows.
    pub flows: usize,
    /// Bits per second, headers included.
    pub rate_bps: f64,
    /// Share of its rate; null without a rate.
    pub rate_ratio: Option<f64>,
}

/// Prediction for all flows of a topology.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Name and version of the schema.
    pub schema: &'static str,
    /// Topology.
    pub topology: String,
    /// Number of nodes.
    pub node_count: usize,
    /// Number of links.
    pub link_count: usize,
    /// Deadline.
    pub deadline_ns: f64,
    /// Requested probability.
    pub probability: f64,
    /// Flows, in the order of the topology.
    pub flows: Vec<FlowPrediction>,
    /// Relays with traffic.
    pub nodes: Vec<NodeUse>,
    /// Links with traffic.
    pub links: Vec<LinkUse>,
    /// Assumptions of the prediction.
    pub assumptions: Vec<String>,
    /// Remarks on its reliability.
    pub notes: Vec<String>,
}

impl Prediction {
    /// Name and version of the schema.
    pub const SCHEMA: &'static str = "dwell.prediction/1";

    /// Whether every flow meets the deadline.
    pub fn is_met(&self) -> bool {
        self.flows.iter().all(|flow| flow.state == FlowState::Meets)
    }
}
