//! Sends a new schedule to the nodes as soon as it is applied.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use dwell_hub::store::HubStore;
use dwell_hub::{HubError, newest_schedule};
use dwell_rollup::{Name, Subject};

use crate::event::BusEvent;
use crate::hub::{Context, SharedStore, Stop};

/// Time between looks for a new schedule.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Number of nodes whose schedules are read at once, so that records need not wait for long.
const NODES_BATCH: usize = 200;

/// Sends each new schedule until the hub is to stop; at the start the newest one, which may have been
/// applied while no hub ran.
pub(crate) async fn announce(context: &Context<'_>, mut stop: Stop) {
    let mut sent = None;
    loop {
        let newest = blocking(context, |store| store.begin_to_read()?.newest_version()).await;
        // A failed database is reported by what stores in it.
        if let Ok(Some(version)) = newest
            && sent != Some(version)
            && let Ok(nodes) = send_all(context, &stop).await
        {
            sent = Some(version);
            if nodes > 0 {
                (context.report)(BusEvent::Schedule { version, nodes });
            }
        }
        if stop.sleep(POLL_INTERVAL).await {
            return;
        }
    }
}

/// Sends the newest schedule to each known node. Returns their number.
async fn send_all(context: &Context<'_>, stop: &Stop) -> Result<usize, HubError> {
    let known = blocking(context, |store| store.begin_to_read()?.nodes()).await?;
    let mut nodes: BTreeSet<Name> = known.into_iter().map(|node| node.name).collect();
    nodes.extend(context.asked.borrow().iter().cloned());
    let nodes: Vec<Name> = nodes.into_iter().collect();
    for part in nodes.chunks(NODES_BATCH) {
        if stop.is_requested() {
            break;
        }
        let part = part.to_vec();
        let schedules = blocking(context, move |store| {
            let mut transaction = store.begin_to_read()?;
            let schedule = |node: Name| {
                let newest = newest_schedule(&mut *transaction, &node)?;
                Ok(newest.map(|newest| (node, newest.to_json())))
            };
            part.into_iter().map(schedule).collect::<Result<Vec<_>, HubError>>()
        });
        for (node, json) in schedules.await?.into_iter().flatten() {
            let _ = context.client.publish(Subject::Schedule.of(&node), json.into()).await;
        }
    }
    Ok(nodes.len())
}

/// Runs a function with the store on a thread that may block.
async fn blocking<T: Send + 'static>(
    context: &Context<'_>,
    read: impl FnOnce(&mut dyn HubStore) -> Result<T, HubError> + Send + 'static,
) -> Result<T, HubError> {
    let store = SharedStore::clone(&context.hub.store);
    let job = tokio::task::spawn_blocking(move || {
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        read(&mut *store)
    });
    match job.await {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
