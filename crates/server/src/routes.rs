use crate::answer::{probe, Failure};
use crate::gate::{Gate, BODY_BYTES};
use crate::wire::PositionAnswer;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{header, HeaderMap, StatusCode};
use axum::middleware::{from_fn_with_state, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{de::DeserializeOwned, Deserialize};
use std::sync::Arc;
use tidewire_change::Error;
use tidewire_pipeline::reconcile::{Comparison, Live};
use tidewire_pipeline::wire::ReadRequest;
use tidewire_pipeline::{current, diagnose, live, ready, Finding, Running, Status};

/// `/current` without `within`: seconds.
const CURRENT_SECONDS: f64 = 10.0;
/// Answered without a token: orchestrators have none, and they tell nothing but whether it works.
const PROBES: [&str; 3] = ["/live", "/ready", "/current"];

pub(crate) fn router(running: Running, gate: Gate) -> Router {
    Router::new()
        .route("/status", get(status))
        .route("/findings", get(findings))
        .route("/metrics", get(metrics))
        .route("/live", get(is_live))
        .route("/ready", get(is_ready))
        .route("/current", get(is_current))
        .route("/sinks/{name}/boundary", get(boundary))
        .route("/reads", post(reads))
        .route("/mark", post(mark))
        .route("/comparisons", post(comparisons))
        .route("/stop", post(stop))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is nothing here; try /status\n") })
        .layer(from_fn_with_state(Arc::new(gate), admit))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(running)
}

async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    if PROBES.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match gate.refusal(request.headers()) {
        Some((status, why)) => (status, format!("{why}\n")).into_response(),
        None => next.run(request).await,
    }
}

async fn status(State(running): State<Running>) -> Json<Status> {
    Json(running.status())
}

async fn findings(State(running): State<Running>) -> Json<Vec<Finding>> {
    Json(diagnose(&running.status()))
}

async fn metrics(State(running): State<Running>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], running.metrics()).into_response()
}

async fn is_live(State(running): State<Running>) -> Response {
    probe(live(&running.status()))
}

async fn is_ready(State(running): State<Running>) -> Response {
    probe(ready(&running.status()))
}

#[derive(Deserialize)]
struct Within {
    /// Seconds.
    within: Option<f64>,
}

async fn is_current(State(running): State<Running>, Query(query): Query<Within>) -> Response {
    probe(current(&running.status(), query.within.unwrap_or(CURRENT_SECONDS)))
}

async fn boundary(State(running): State<Running>, Path(name): Path<String>) -> Result<Json<PositionAnswer>, Failure> {
    Ok(Json(PositionAnswer { position: running.sink_boundary(&name).await? }))
}

async fn reads(State(running): State<Running>, headers: HeaderMap, body: Bytes) -> Result<StatusCode, Failure> {
    let request: ReadRequest = json(&headers, &body)?;
    running.read(request.selection()?).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn mark(
    State(running): State<Running>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<PositionAnswer>, Failure> {
    json::<serde_json::Value>(&headers, &body)?;
    Ok(Json(PositionAnswer { position: running.mark().await? }))
}

async fn comparisons(State(running): State<Running>, headers: HeaderMap, body: Bytes) -> Result<StatusCode, Failure> {
    let comparison: Comparison = json(&headers, &body)?;
    running.report(&comparison).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Answers at once; the pipeline ends within its shutdown time.
async fn stop(State(running): State<Running>, headers: HeaderMap, body: Bytes) -> Result<StatusCode, Failure> {
    json::<serde_json::Value>(&headers, &body)?;
    tokio::spawn(async move {
        // How it ended is told by whoever runs it.
        let _ = running.stop().await;
    });
    Ok(StatusCode::ACCEPTED)
}

/// A JSON body that says that it is one: a browser doesn't send that to another origin unasked.
pub(crate) fn json<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Failure> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/json") {
        return Err(Error::invalid("the body must be application/json").hint("set the header Content-Type").into());
    }
    serde_json::from_slice(body)
        .map_err(|e| Error::invalid(format!("the body can't be read: line {} column {}", e.line(), e.column())).into())
}
