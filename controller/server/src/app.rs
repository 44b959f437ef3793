//! The state that all requests share, and the router.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::data::Stores;
use crate::experiments::Experiments;
use crate::pages::PageState;
use crate::{Config, api, assets, pages};

/// The state that all requests share.
#[derive(Clone, Debug)]
pub struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    stores: Stores,
    experiments: Experiments,
    pages: PageState,
}

impl App {
    /// Returns the state of a server that has not answered a request yet.
    pub fn new(config: Config) -> Self {
        let stores = Stores::new(config.data.clone());
        let experiments = Experiments::new(&config);
        Self(Arc::new(Shared { config, stores, experiments, pages: PageState::default() }))
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
}

/// Returns all routes.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .merge(pages::router())
        .nest("/api/v1", api::router())
        .route("/assets/{hash}/{name}", get(assets::asset))
        .with_state(app)
}
