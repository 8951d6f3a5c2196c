//! Who may ask, and how much.

use axum::http::{header, HeaderMap, StatusCode};

/// The largest body that is read.
pub(crate) const BODY_BYTES: usize = 16 << 20;

pub(crate) struct Gate {
    pub token: Option<String>,
    /// Only names of this machine are taken for `Host`, so that no web page elsewhere reaches it through a browser.
    pub loopback: bool,
}

impl Gate {
    /// Why a request with these headers isn't let in.
    pub fn refusal(&self, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
        if declared_length(headers) > BODY_BYTES {
            return Some((StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
        }
        if self.loopback && !is_local_host(headers) {
            return Some((StatusCode::FORBIDDEN, "the Host header names another machine"));
        }
        match &self.token {
            Some(_) if !headers.contains_key(header::AUTHORIZATION) => {
                Some((StatusCode::UNAUTHORIZED, "a token is required: Authorization: Bearer …"))
            }
            Some(token) if !has_token(headers, token) => Some((StatusCode::UNAUTHORIZED, "the token is wrong")),
            _ => None,
        }
    }
}

fn declared_length(headers: &HeaderMap) -> usize {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|h| h.to_str().ok());
    length.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn is_local_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|h| h.to_str().ok()) else { return true };
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Compares all bytes, so that the time tells nothing.
fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|h| h.as_bytes().split_at_checked(7));
    let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")).map(|(_, given)| given);
    given.is_some_and(|given| {
        given.len() == token.len() && given.iter().zip(token.as_bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    })
}
