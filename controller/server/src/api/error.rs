//! Errors of the API: one form for all.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::error::Error;

/// An error that is sent as JSON: `{"error": {"code", "message"}}`.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Error);

impl<E: Into<Error>> From<E> for ApiError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.0.code(), "message": self.0.to_string() });
        (self.0.status(), Json(json!({ "error": error }))).into_response()
    }
}
