//! Requests and answers over HTTP.

use super::answers;
use super::keeper::Keeper;
use super::routes::Request as Asked;
use crate::gate::{Gate, BODY_BYTES};
use crate::serve::{begin, Bound, Serving};
use axum::extract::{Request, State};
use axum::http::{header, HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::Router;
use serde_json::Value;
use std::sync::Arc;
use tidewire_registry::base64;
use tidewire_registry::state::{Answer, Refusal};

const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";

struct Door {
    gate: Gate,
    keeper: Arc<Keeper>,
}

/// Starts to answer for the registry.
pub fn serve(keeper: Arc<Keeper>, bound: Bound) -> Serving {
    begin(bound, move |gate| Router::new().fallback(answer).with_state(Arc::new(Door { gate, keeper })))
}

async fn answer(State(door): State<Arc<Door>>, request: Request) -> Response {
    match door.ask(request).await {
        Ok(value) => told(StatusCode::OK, &value),
        Err(refusal) => {
            let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            told(status, &answers::refusal(&refusal))
        }
    }
}

fn told(status: StatusCode, value: &Value) -> Response {
    // A string is the bare text of a schema.
    let text = match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))], text).into_response()
}

impl Door {
    async fn ask(&self, request: Request) -> Answer<Value> {
        let (head, body) = request.into_parts();
        if let Some((status, why)) = self.gate.refusal(&with_token(&head.headers)) {
            return Err(Refusal::new(status.as_u16().into(), why));
        }
        // A page of another address can send plain forms unasked, and nothing of these types.
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if [Method::POST, Method::PUT].contains(&head.method) && !kind.to_ascii_lowercase().contains("json") {
            return Err(Refusal::new(415, format!("HTTP 415 Unsupported Media Type: the body must be {CONTENT_TYPE}")));
        }
        let body =
            axum::body::to_bytes(body, BODY_BYTES).await.map_err(|_| Refusal::new(413, "the body is too large"))?;
        let keeper = self.keeper.clone();
        // Comparing and writing take their time; and somebody who goes away in the middle leaves nothing half done.
        let answered = tokio::task::spawn_blocking(move || {
            let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
            Asked { method: head.method.as_str(), path, query, body: &body }.answer(&keeper)
        });
        answered.await.unwrap_or_else(|_| Err(Refusal::new(500, "A fault of Tidewire; the log tells more")))
    }
}

/// Clients of registries know user and password: the password is the token.
fn with_token(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
    let basic = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic")).map(|(_, pair)| pair.trim_start());
    let pair = basic.and_then(base64::decode).and_then(|pair| String::from_utf8(pair).ok());
    let token = pair.as_deref().and_then(|pair| pair.split_once(':')).map(|(_, token)| format!("Bearer {token}"));
    if let Some(token) = token.and_then(|token| HeaderValue::from_str(&token).ok()) {
        headers.insert(header::AUTHORIZATION, token);
    }
    headers
}
