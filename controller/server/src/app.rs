//! The state that all requests share, and the router.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::access::{self, Access};
use crate::data::Stores;
use crate::{Config, api, assets, pages};

/// The state that all requests share.
#[derive(Clone, Debug)]
pub struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    stores: Stores,
}

impl App {
    /// Returns the state of a server that has not answered a request yet.
    pub fn new(config: Config) -> Self {
        let stores = Stores::new(config.data.clone());
        Self(Arc::new(Shared { config, stores }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn stores(&self) -> &Stores {
        &self.0.stores
    }
}

/// Returns all routes, with the checks of every request.
pub(crate) fn router(app: App, access: Arc<Access>) -> Router {
    let routes = Router::new()
        .merge(pages::router())
        .nest("/api/v1", api::router())
        .route("/assets/{hash}/{name}", get(assets::asset))
        .with_state(app);
    access::protect(routes, access)
}
