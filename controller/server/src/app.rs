//! The state that all requests share, and the router.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::data::Stores;
use crate::experiments::Experiments;
use crate::{Config, api, assets, pages};

/// The state that all requests share.
#[derive(Clone, Debug)]
pub struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    stores: Stores,
    experiments: Experiments,
}

impl App {
    /// Returns the state of a server that has not answered a request yet.
    pub fn new(config: Config) -> Self {
        let stores = Stores::new(config.data.clone());
        let experiments = Experiments::new(&config);
        Self(Arc::new(Shared { config, stores, experiments }))
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
}

/// Returns all routes.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .merge(pages::router())
        .nest("/api/v1", api::router())
        .route("/assets/{hash}/{name}", get(assets::asset))
        .with_state(app)
}
