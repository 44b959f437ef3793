//! The state that all requests share, and the router.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio::sync::{Mutex, Semaphore};

use crate::access::{self, Access};
use crate::api::{RunObjects, RunWatches};
use crate::data::Stores;
use crate::experiments::Experiments;
use crate::pages::PageState;
use crate::{Config, api, assets, metrics, pages};

/// Number of commands that run at the same time; requests for more wait.
const MAX_COMMANDS: usize = 8;

/// Number of exports at the same time; requests for more wait.
const MAX_STREAMS: usize = 4;

/// The state that all requests share.
#[derive(Clone, Debug)]
pub struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    stores: Stores,
    experiments: Experiments,
    run_objects: RunObjects,
    metrics: metrics::Cached,
    /// Commands that requests wait for.
    commands: Semaphore,
    /// Commands whose output is streamed.
    streams: Arc<Semaphore>,
    run_watches: RunWatches,
    /// Held while a run is deleted for ever or restored.
    deletion: Mutex<()>,
    pages: PageState,
}

impl App {
    /// Returns the state of a server that has not answered a request yet.
    pub fn new(config: Config) -> Self {
        let stores = Stores::new(config.data.clone());
        let experiments = Experiments::new(&config);
        Self(Arc::new(Shared {
            config,
            stores,
            experiments,
            run_objects: RunObjects::default(),
            metrics: metrics::Cached::default(),
            commands: Semaphore::new(MAX_COMMANDS),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            run_watches: RunWatches::default(),
            deletion: Mutex::default(),
            pages: PageState::default(),
        }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn stores(&self) -> &Stores {
        &self.0.stores
    }

    pub(crate) fn experiments(&self) -> &Experiments {
        &self.0.experiments
    }

    pub(crate) fn pages(&self) -> &PageState {
        &self.0.pages
    }

    pub(crate) fn run_objects(&self) -> &RunObjects {
        &self.0.run_objects
    }

    pub(crate) fn run_watches(&self) -> &RunWatches {
        &self.0.run_watches
    }

    pub(crate) fn deletion(&self) -> &Mutex<()> {
        &self.0.deletion
    }

    pub(crate) fn metrics(&self) -> &metrics::Cached {
        &self.0.metrics
    }

    pub(crate) fn commands(&self) -> &Semaphore {
        &self.0.commands
    }

    pub(crate) fn streams(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.streams)
    }

    /// Starts the work that no request waits for.
    pub(crate) fn start_tasks(&self) {
        tokio::spawn(self.clone().purge());
    }
}

/// Returns all routes, with the checks of every request.
pub(crate) fn router(app: App, access: Arc<Access>) -> Router {
    let routes = Router::new()
        .merge(pages::router())
        .nest("/api/v1", api::router())
        .route("/metrics", get(metrics::page))
        .route("/assets/{hash}/{name}", get(assets::asset))
        .with_state(app);
    access::protect(routes, access)
}
