//! Fuzz target for results of 802.11 FTM. Shared by the libFuzzer target and the smoke test of
//! `core/host`.

use dwell_host::FtmResults;

pub(crate) fn ftm(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let results = FtmResults::read(&text);
    let lines = text.lines().count() as u64;
    assert!(results.round_trips.len() as u64 + results.invalid <= lines);
    assert!(results.wrapped <= results.round_trips.len() as u64);
    for found in &results.round_trips {
        assert!((-100_000_000..=100_000_000).contains(&found.rtt_ps) && found.rtt_ps != 0);
        assert!(found.peer.is_none_or(|peer| peer < results.peers.len()));
    }
    let by_peer = (0..results.peers.len()).map(|peer| results.rtts_ps(Some(peer)).len());
    assert!(by_peer.sum::<usize>() <= results.round_trips.len());
    assert!(results.step_ps() >= 1.0);
}
