//! Parts of requests, with uniform errors.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// A JSON body, whose length `access` limits.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            return Err(ApiError::request(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                "the body must have Content-Type: application/json",
            ));
        }
        let bytes =
            Bytes::from_request(request, state).await.map_err(|error| body_error(&error))?;
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let field = error.path().to_string();
            let error = error.into_inner();
            if error.is_data() {
                let place = if field == "." { String::new() } else { format!("{field}: ") };
                return ApiError::request(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "invalid",
                    format!("{place}{error}"),
                );
            }
            bad_json(&error)
        })?;
        json.end().map_err(|error| bad_json(&error))?;
        Ok(Self(value))
    }
}

fn bad_json(error: &serde_json::Error) -> ApiError {
    let text = format!("the body is not valid JSON: {error}");
    ApiError::request(StatusCode::BAD_REQUEST, "bad-request", text)
}

/// Converts an error of reading a body.
fn body_error(error: &BytesRejection) -> ApiError {
    ApiError::request(error.status(), "bad-request", format!("the body cannot be read: {error}"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

/// The query.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = axum::extract::Query::from_request_parts(parts, state).await;
        let axum::extract::Query(query) = query.map_err(|error| {
            let text = format!("invalid query: {}", error.body_text());
            ApiError::request(StatusCode::BAD_REQUEST, "bad-request", text)
        })?;
        Ok(Self(query))
    }
}

/// Names in the path.
#[derive(Debug)]
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        let axum::extract::Path(path) = path.map_err(|error| {
            let text = format!("invalid path: {}", error.body_text());
            ApiError::request(StatusCode::BAD_REQUEST, "bad-request", text)
        })?;
        Ok(Self(path))
    }
}
