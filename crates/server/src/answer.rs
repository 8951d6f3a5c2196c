use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::Json;
use tidewire_change::{Error, ErrorKind};
use tidewire_pipeline::wire::ErrorAnswer;
use tidewire_pipeline::Health;

/// An error as an answer.
pub(crate) struct Failure(pub Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0.kind() {
            ErrorKind::Invalid | ErrorKind::Malformed => StatusCode::BAD_REQUEST,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Schema | ErrorKind::Lost | ErrorKind::Bug => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(ErrorAnswer::from(&self.0))).into_response()
    }
}

/// 200 or 503, with the reasons.
pub(crate) fn probe(health: Health) -> Response {
    let status = if health.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}
