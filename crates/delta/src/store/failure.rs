//! What an object store says when it doesn't do what it was asked for, in our own errors.

use object_store::Error as StoreError;
use tidewire_change::{Error, Result};

/// Does the disk, the network or the store say so? Then it is no fault of the file that was asked for.
pub fn of_the_system(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>() || cause.is::<StoreError>())
}

/// May the same request succeed a moment later?
pub(super) fn may_pass(error: &StoreError) -> bool {
    let text = || error.to_string();
    match error {
        StoreError::Generic { .. } if is_untrusted(&root(error)) => false,
        // A request that the store understood and refused stays refused; 408 and 429 ask for patience.
        StoreError::Generic { .. } => {
            status(&text()).is_none_or(|status| !(300..500).contains(&status) || matches!(status, 408 | 429))
        }
        StoreError::JoinError { .. } => true,
        _ => false,
    }
}

/// `place`: what was asked for.
pub(super) fn told(error: StoreError, place: &str) -> Error {
    let (mut said, root) = (said(&error.to_string()), root(&error));
    // Of a request that got nowhere the outermost error says no more than that.
    if said.ends_with("error sending request") && !root.is_empty() {
        said = format!("{said}: {root}");
    }
    let invalid = |what: &str, hint: &str| Error::invalid(format!("{place}: {what} ({said})")).hint(hint);
    match &error {
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => invalid(
            "the store refuses us",
            "check the access key and its rights: it must list the bucket, and get, put and delete objects",
        ),
        StoreError::NotFound { .. } => invalid("there is no such bucket or object", "check the bucket's name"),
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => {
            invalid("the store can't do that", NO_PUT_IF_ABSENT)
        }
        _ if said.contains("NoSuchBucket") => invalid("there is no such bucket", "make it, or check its name"),
        _ if status(&error.to_string()) == Some(501) => invalid("the store can't do that", NO_PUT_IF_ABSENT),
        _ if is_untrusted(&root) => invalid(
            "the store's certificate isn't trusted",
            "let the system trust its authority, or name a file with it in the variable SSL_CERT_FILE; or correct the endpoint",
        ),
        _ if may_pass(&error) => Error::unavailable(format!("{place}: the store doesn't answer as it should ({said})")),
        _ => invalid("the store refuses it", "check region, endpoint and the bucket's name"),
    }
    .caused_by(error)
}

/// What the innermost cause says; empty: there is none.
fn root(error: &StoreError) -> String {
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause.and_then(|cause| cause.source()) {
        cause = Some(next);
    }
    cause.map(ToString::to_string).unwrap_or_default()
}

fn is_untrusted(root: &str) -> bool {
    root.contains("invalid peer certificate")
}

pub(super) const NO_PUT_IF_ABSENT: &str =
    "a Delta table needs a store with put-if-absent (the header If-None-Match: *), as S3 itself, MinIO and R2 have it";

/// The like of `Error::io`, for what is written through `std::io`.
pub(super) fn as_io<T>(result: Result<T>) -> std::io::Result<T> {
    result.map_err(std::io::Error::other)
}

/// The status that an answer had.
fn status(text: &str) -> Option<u16> {
    text.split("status code: ").nth(1)?.get(..3)?.parse().ok()
}

/// The part of an error that tells something, without the XML around it and the request before it.
fn said(text: &str) -> String {
    let within = |tag: &str| {
        let after = text.split(&format!("<{tag}>")).nth(1)?;
        Some(after.split("</").next()?.to_string())
    };
    match (within("Code"), within("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code,
        _ => {
            let last = text.rsplit(" - ").next().unwrap_or(text);
            last.split('<').next().unwrap_or(last).trim().trim_end_matches(':').to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::ErrorKind;

    fn generic(text: &str) -> StoreError {
        StoreError::Generic { store: "S3", source: text.to_string().into() }
    }

    #[test]
    fn what_the_store_says_is_told_without_its_xml_and_decides_whether_it_is_tried_again() {
        let xml = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>";
        let busy = generic(&format!("Error performing PUT http://x/y in 1s, after 2 retries - Server returned non-2xx status code: 503 Service Unavailable: {xml}"));
        assert!(may_pass(&busy));
        let error = told(busy, "s3://b/t");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("s3://b/t") && error.to_string().contains("SlowDown: Reduce your rate"));
        assert!(!error.to_string().contains('<'), "{error}");
        assert!(of_the_system(&error));
        let wrong =
            generic("Error performing PUT http://x/y in 1s - Server returned non-2xx status code: 400 Bad Request: ");
        assert!(!may_pass(&wrong));
        assert_eq!(told(wrong, "s3://b/t").kind(), ErrorKind::Invalid);
        let cut = generic("Error performing GET http://x/y in 9ms - HTTP error: error sending request");
        assert!(may_pass(&cut));
        assert_eq!(told(cut, "s3://b/t").kind(), ErrorKind::Unavailable);
    }
    #[test]
    fn a_certificate_that_nobody_trusts_is_named_and_not_asked_for_again() {
        let cause = std::io::Error::other("invalid peer certificate: UnknownIssuer");
        let error = StoreError::Generic { store: "S3", source: Box::new(cause) };
        assert!(!may_pass(&error));
        let told = told(error, "s3://b/t");
        assert_eq!(told.kind(), ErrorKind::Invalid);
        assert!(
            told.to_string().contains("certificate isn't trusted") && told.to_string().contains("UnknownIssuer"),
            "{told}"
        );
    }
}
