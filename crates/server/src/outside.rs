//! HTTP bodies and answers of any bytes, for the fuzz targets.

use crate::routes::json;
use axum::http::{header, HeaderMap, HeaderValue};
use tidewire_change::ErrorKind;
use tidewire_connector::Selection;
use tidewire_pipeline::reconcile::Comparison;
use tidewire_pipeline::wire::ReadRequest;

/// Whether the bytes are the body of some request. Panics unless they are read, or refused without being repeated.
pub fn http_body(bytes: &[u8]) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let read = json::<ReadRequest>(&headers, bytes).and_then(|request| Ok(request.selection()?));
    let is_read = match read {
        Ok(selection) => came_back(&selection),
        Err(refused) => {
            assert_eq!(refused.0.kind(), ErrorKind::Invalid, "{}", refused.0);
            false
        }
    };
    json::<Comparison>(&headers, bytes).is_ok() || is_read
}

/// What was understood says the same when it is sent on.
fn came_back(selection: &Selection) -> bool {
    let sent = serde_json::to_vec(&ReadRequest::from(selection)).expect("a request has a JSON form");
    let again = serde_json::from_slice::<ReadRequest>(&sent).map(ReadRequest::selection);
    assert_eq!(again.expect("what we sent is read").expect("and understood"), *selection);
    true
}

/// Whether the bytes are an HTTP answer, as the client sees it.
pub fn http_answer(bytes: &[u8]) -> bool {
    crate::http1::parse(bytes).is_ok()
}
