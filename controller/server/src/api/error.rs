//! Errors of the API: one form for all.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

use crate::error::Error;

/// An error that is sent as JSON.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Error);

impl ApiError {
    /// An error of the request itself.
    pub(crate) fn request(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self(Error::Request(status, code, text.into()))
    }
}

impl<E: Into<Error>> From<E> for ApiError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// The body of every error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorDetails,
}

/// What is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorDetails {
    /// Name of the reason, which programs may compare.
    #[schema(example = "not-found")]
    code: String,
    /// What failed, on what and why.
    message: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = ErrorDetails { code: self.0.code().to_owned(), message: self.0.to_string() };
        (self.0.status(), Json(ErrorBody { error })).into_response()
    }
}

/// Errors that every request may get.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "openapi.json describes them; handlers answer with `ApiError`")]
pub(crate) enum CommonErrors {
    /// The request is malformed: its path, query or JSON
    #[response(status = 400)]
    BadRequest(ErrorBody),
    /// The token is missing or wrong
    #[response(status = 401)]
    Unauthorized(ErrorBody),
    /// The request comes from another page
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// There is nothing of this name
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The data directory cannot be read or written
    #[response(status = 500)]
    Failed(ErrorBody),
    /// The server is ending
    #[response(status = 503)]
    Ending(ErrorBody),
}

/// Errors of requests that change something.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "openapi.json describes them; handlers answer with `ApiError`")]
pub(crate) enum ChangeErrors {
    /// It does not fit to the present state, or a command of dwell failed
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// The body is too long
    #[response(status = 413)]
    TooLong(ErrorBody),
    /// The body is not of the expected type
    #[response(status = 415)]
    WrongType(ErrorBody),
    /// A value is invalid; the message names it
    #[response(status = 422)]
    Invalid(ErrorBody),
}

/// Answers requests for paths that do not exist.
pub(super) async fn not_found() -> ApiError {
    let text = "there is no such path; /api/v1/openapi.json lists all";
    ApiError::request(StatusCode::NOT_FOUND, "not-found", text)
}

/// Answers requests with a method that their path does not have.
pub(super) async fn wrong_method() -> ApiError {
    let text = "this path does not have this method; the header Allow lists those that it has";
    ApiError::request(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", text)
}
