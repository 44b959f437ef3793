//! Sends a Parquet file.

use std::io;
use std::path::Path;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Length of a piece in bytes.
const PIECE_LEN: usize = 64 << 10;

/// Returns the file as an answer, which is read while it is sent.
///
/// # Errors
/// The file cannot be opened.
pub(crate) async fn parquet_file(path: &Path) -> io::Result<Response> {
    let file = File::open(path).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/vnd.apache.parquet".to_owned()),
        (header::CONTENT_LENGTH, file.metadata().await?.len().to_string()),
    ];
    Ok((headers, body(file)).into_response())
}

fn body(mut file: File) -> Body {
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            let mut piece = Vec::with_capacity(PIECE_LEN);
            let read = file.read_buf(&mut piece).await.map(|_| Bytes::from(piece));
            let is_last = read.as_ref().map_or(true, Bytes::is_empty);
            let is_empty = read.as_ref().is_ok_and(Bytes::is_empty);
            if (!is_empty && sender.send(read).await.is_err()) || is_last {
                return;
            }
        }
    });
    Body::from_stream(ReceiverStream::new(receiver))
}
