//! Runs the fuzz targets of topologies and models on their committed seeds and on mutations of them.

#[path = "../../../fuzz/src/predict.rs"]
mod predict;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn mutated_topologies_are_predicted_or_refused() {
    Smoke {
        corpus: "topology",
        seeds: 3,
        rounds: 1_500,
        alphabet: b"0123456789.\"= []{},:_pMk%us\n",
    }
    .run(predict::topology);
}

#[test]
fn mutated_models_are_used_or_refused() {
    Smoke { corpus: "model", seeds: 2, rounds: 1_500, alphabet: b"0123456789.-e,:\"[]{}" }
        .run(predict::model);
}
