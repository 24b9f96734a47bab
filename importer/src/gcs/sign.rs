//! Addresses that a key has signed: Google's "V4 signing process with RSA keys".

use std::fmt::Write as _;
use std::time::SystemTime;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::account::ServiceAccount;

const ALGORITHM: &str = "GOOG4-RSA-SHA256";
/// Longer than an address is used, so that a slow clock does no harm.
const SECONDS_GOOD: u32 = 3600;
/// What stays as it is in a signed query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) struct Target<'a> {
    pub(super) method: &'a str,
    /// With the port, if it is not the usual one.
    pub(super) host: &'a str,
    /// Encoded.
    pub(super) path: &'a str,
    pub(super) generation: Option<String>,
}

impl Target<'_> {
    /// Without a signature.
    pub(super) fn query(&self) -> String {
        self.generation.iter().map(|generation| pair("generation", generation)).collect()
    }
}

impl ServiceAccount {
    /// The query that makes `target` an address good for an hour from `now`.
    pub(super) fn sign(&self, target: &Target<'_>, now: SystemTime) -> Result<String, String> {
        let (date, time) = date_and_time(now);
        let scope = format!("{date}/auto/storage/goog4_request");
        // In the order of their names, as they are signed: capitals come first.
        let mut pairs = vec![
            pair("X-Goog-Algorithm", ALGORITHM),
            pair("X-Goog-Credential", &format!("{}/{scope}", self.email)),
            pair("X-Goog-Date", &format!("{date}T{time}Z")),
            pair("X-Goog-Expires", &SECONDS_GOOD.to_string()),
            pair("X-Goog-SignedHeaders", "host"),
        ];
        pairs.extend(target.generation.iter().map(|generation| pair("generation", generation)));
        let query = pairs.join("&");
        let Target { method, host, path, .. } = target;
        let request = format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
        let digest = hex(&Sha256::digest(request));
        let text = format!("{ALGORITHM}\n{date}T{time}Z\n{scope}\n{digest}");
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| "its address cannot be signed with this key".to_owned())?;
        Ok(format!("{query}&X-Goog-Signature={}", hex(&signature)))
    }
}

fn pair(name: &str, value: &str) -> String {
    format!("{name}={}", utf8_percent_encode(value, QUERY))
}

/// `20261121` and `153000`, in UTC.
fn date_and_time(now: SystemTime) -> (String, String) {
    let now = OffsetDateTime::from(now);
    let (year, month, day) = (now.year(), u8::from(now.month()), now.day());
    let (hour, minute, second) = (now.hour(), now.minute(), now.second());
    (format!("{year:04}{month:02}{day:02}"), format!("{hour:02}{minute:02}{second:02}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a String takes everything
        text
    })
}
