//! `tls-server-end-point` (RFC 5929, section 4.1): the hash of the server's certificate, by the hash of its signature.

use ring::digest::{self, Algorithm, SHA256, SHA384, SHA512};

/// Signature algorithms by their object identifiers (DER contents), with the hash that the RFC asks for: MD5 and SHA-1 are
/// replaced by SHA-256.
const ALGORITHMS: &[(&[u8], &Algorithm)] = &[
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04], &SHA256), // md5WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05], &SHA256), // sha1WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], &SHA256), // sha256WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c], &SHA384), // sha384WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d], &SHA512), // sha512WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01], &SHA256),             // ecdsa-with-SHA1
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02], &SHA256),       // ecdsa-with-SHA256
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03], &SHA384),       // ecdsa-with-SHA384
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04], &SHA512),       // ecdsa-with-SHA512
];

/// `None` when the signature has no single hash (Ed25519, RSA-PSS): such a certificate can't be bound to.
pub(crate) fn hash(certificate: &[u8]) -> Option<Vec<u8>> {
    let oid = signature_oid(certificate)?;
    let (_, algorithm) = ALGORITHMS.iter().find(|(known, _)| *known == oid)?;
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { algorithm OID, … }, … }
fn signature_oid(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(certificate, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    element(algorithm, OBJECT_IDENTIFIER).map(|(oid, _)| oid)
}

/// Contents of the DER element at the front, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().fold(0usize, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    (first == tag).then(|| rest.split_at_checked(length)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn certificate(key: &rcgen::KeyPair) -> Vec<u8> {
        let parameters = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        parameters.self_signed(key).unwrap().der().to_vec()
    }

    #[test]
    fn the_hash_is_the_one_of_the_signature_and_ed25519_has_none() {
        for (algorithm, length) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(32)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(48)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let der = certificate(&rcgen::KeyPair::generate_for(algorithm).unwrap());
            assert_eq!(hash(&der).map(|hash| hash.len()), length, "{algorithm:?}");
        }
    }

    proptest! {
        #[test]
        fn cut_or_changed_certificates_never_panic(cut in 0usize..600, at in 0usize..600, byte in any::<u8>()) {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut der = certificate(&key);
            let at = at % der.len();
            der[at] = byte;
            der.truncate(cut);
            hash(&der);
        }
    }
}
