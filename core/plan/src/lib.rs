//! Experiment plans: what to measure, over which parameters, how often and in which order.
#![forbid(unsafe_code)]
