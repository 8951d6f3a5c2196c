//! Requests and answers over HTTP.

use super::ask::Request as Asked;
use super::worker::{Body, Reply};
use super::{Refusal, Worker};
use crate::gate::{Gate, BODY_BYTES};
use crate::serve::{begin, bind, Address, Serving};
use axum::extract::{Request, State};
use axum::http::{header, HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::json;
use std::sync::Arc;
use tidewire_change::Result;

struct Door {
    gate: Gate,
    worker: Arc<Worker>,
}

/// Starts to answer for the connectors. `Invalid` when the address is taken, isn't this machine's, or lacks a token.
pub async fn serve(worker: Arc<Worker>, at: Address) -> Result<Serving> {
    let for_it = worker.clone();
    let app = move |gate| Router::new().fallback(answer).with_state(Arc::new(Door { gate, worker: for_it }));
    let serving = begin(bind(at).await?, app);
    worker.called(serving.address().to_string());
    Ok(serving)
}

async fn answer(State(door): State<Arc<Door>>, request: Request) -> Response {
    // Somebody who goes away in the middle leaves nothing half done.
    let answered = tokio::spawn(async move {
        match door.ask(request).await {
            Ok(reply) => told(reply),
            Err(refusal) => refused(refusal),
        }
    });
    answered.await.unwrap_or_else(|_| refused(Refusal::new(500, "A fault of Tidewire; the log tells more")))
}

impl Door {
    async fn ask(&self, request: Request) -> Result<Reply, Refusal> {
        let (head, body) = request.into_parts();
        // Tells nothing but that it answers; orchestrators have no token.
        let is_probe = head.uri.path() == "/health";
        if let Some((status, why)) = self.gate.refusal(&head.headers).filter(|_| !is_probe) {
            return Err(Refusal::new(status.as_u16(), why));
        }
        if is_of_another_page(&head.headers) {
            return Err(Refusal::new(403, "a page of another address asks: the Origin header isn't this one"));
        }
        let body =
            axum::body::to_bytes(body, BODY_BYTES).await.map_err(|_| Refusal::new(413, "the body is too large"))?;
        let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let asked = Asked {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query().unwrap_or_default(),
            content_type: text(header::CONTENT_TYPE),
            body: &body,
        };
        self.worker.answer(asked.understand()?).await
    }
}

/// A browser says so when a page of another address sends a request.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    origin.is_none() || origin != host
}

fn told(reply: Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match reply.body {
        Body::Nothing => status.into_response(),
        Body::Json(body) => (status, Json(body)).into_response(),
        Body::Text(text) => (status, text).into_response(),
    };
    for (name, value) in reply.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn refused(refusal: Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = json!({"error_code": refusal.status, "message": refusal.message});
    let mut response = (status, Json(body)).into_response();
    if let (Ok(allowed), false) = (HeaderValue::from_str(&refusal.allowed), refusal.allowed.is_empty()) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}
