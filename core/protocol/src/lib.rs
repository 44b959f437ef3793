//! What a controller and a node say to each other over a pipe.
#![forbid(unsafe_code)]
