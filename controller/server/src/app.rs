//! The state that all requests share, and the router.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::data::Stores;
use crate::pages::{Clock, Comparisons, Rendered, Trash};
use crate::{Config, api, assets, pages};

/// The state that all requests share.
#[derive(Clone, Debug)]
pub struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    stores: Stores,
    rendered: Rendered,
    comparisons: Comparisons,
    trash: Trash,
    clock: Clock,
}

impl App {
    /// Returns the state of a server that has not answered a request yet.
    pub fn new(config: Config) -> Self {
        let stores = Stores::new(config.data.clone());
        Self(Arc::new(Shared {
            config,
            stores,
            rendered: Rendered::default(),
            comparisons: Comparisons::default(),
            trash: Trash::default(),
            clock: Clock::default(),
        }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn stores(&self) -> &Stores {
        &self.0.stores
    }

    pub(crate) fn rendered(&self) -> &Rendered {
        &self.0.rendered
    }

    pub(crate) fn comparisons(&self) -> &Comparisons {
        &self.0.comparisons
    }

    pub(crate) fn trash(&self) -> &Trash {
        &self.0.trash
    }

    pub(crate) fn clock_answer(&self) -> &Clock {
        &self.0.clock
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
