//! Certificate lifetimes and renewal times (`spec.certConfig`).

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a certificate is valid, and at which age it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateLifetime {
    pub lifetime: Duration,
    /// Age at which the successor is created.
    pub refresh: Duration,
}

const HOUR: Duration = Duration::from_secs(60 * 60);
/// Minimum of a configured duration.
const LEAST: Duration = Duration::from_secs(10 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateLifetimes {
    pub ca: CertificateLifetime,
    pub server: CertificateLifetime,
    pub client: CertificateLifetime,
}

impl Default for CertificateLifetimes {
    fn default() -> Self {
        let leaf = CertificateLifetime { lifetime: 24 * HOUR, refresh: 12 * HOUR };
        let ca = CertificateLifetime { lifetime: 48 * HOUR, refresh: 24 * HOUR };
        Self { ca, server: leaf, client: leaf }
    }
}

/// `duration` and `renewBefore` of a group of `spec.certConfig`.
pub type LifetimeSetting<'a> = (Option<&'a str>, Option<&'a str>);

impl CertificateLifetimes {
    /// From the three groups of `spec.certConfig`. A group that lacks a member or is invalid counts as absent.
    pub fn from_settings(
        ca: LifetimeSetting,
        server: LifetimeSetting,
        client: LifetimeSetting,
    ) -> Self {
        let default = Self::default();
        let ca = life(ca).unwrap_or(default.ca);
        let server = life(server).unwrap_or(default.server);
        Self { ca, server, client: life(client).unwrap_or(default.client) }
    }

    /// How long an upload server may run before its certificate, or that of its clients, is renewed.
    pub fn upload_deadline(&self) -> Duration {
        self.server.refresh.min(self.client.refresh)
    }
}

fn life((duration, renew_before): LifetimeSetting) -> Option<CertificateLifetime> {
    let lifetime = parse_duration(duration?)?;
    let renew_before = parse_duration(renew_before?)?;
    let refresh = lifetime.checked_sub(renew_before)?;
    (lifetime >= LEAST && !refresh.is_zero()).then_some(CertificateLifetime { lifetime, refresh })
}

/// Parses a Go duration such as `48h0m0s`. `None` for negative ones.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanoseconds = 0_u128;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit_and_rest) = rest.split_at(digits);
        let length = unit_and_rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit_and_rest.len());
        let (unit, next) = unit_and_rest.split_at(length);
        let unit: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        nanoseconds = nanoseconds.checked_add(amount(number, unit)?)?;
        rest = next;
    }
    if text.is_empty() || nanoseconds > i64::MAX as u128 {
        return None; // Go counts nanoseconds in 63 bits
    }
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// A decimal number of units, in nanoseconds. Fractions of a nanosecond are dropped, as in Go.
fn amount(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 40 {
        return None;
    }
    let parse =
        |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
    let fraction = fraction.get(..fraction.len().min(18))?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = parse(fraction)?.checked_mul(unit)? / scale;
    parse(whole)?.checked_mul(unit)?.checked_add(part)
}

/// A Go duration in whole seconds: `48h0m0s`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut text = String::new();
    // Writing to a String cannot fail.
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if seconds >= 60 {
        let _ = write!(text, "{minutes}m");
    }
    let _ = write!(text, "{}s", seconds % 60);
    text
}

/// The annotation with the lifetime that a certificate was created for.
#[derive(Serialize, Deserialize)]
struct LifetimeAnnotation {
    lifetime: String,
    refresh: String,
}

impl CertificateLifetime {
    /// `{"lifetime":"48h0m0s","refresh":"24h0m0s"}`
    pub fn to_annotation(&self) -> String {
        let (lifetime, refresh) = (format_duration(self.lifetime), format_duration(self.refresh));
        format!(r#"{{"lifetime":"{lifetime}","refresh":"{refresh}"}}"#)
    }

    /// Parses [`to_annotation`](Self::to_annotation).
    pub fn from_annotation(text: &str) -> Option<Self> {
        let LifetimeAnnotation { lifetime, refresh } = serde_json::from_str(text).ok()?;
        Some(Self { lifetime: parse_duration(&lifetime)?, refresh: parse_duration(&refresh)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_and_format_as_in_go() {
        for (text, nanoseconds) in [
            ("48h0m0s", 172_800_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1h15m30.918273645s", 4_530_918_273_645),
            ("10ms", 10_000_000),
            ("2us3ns", 2_003),
            ("0", 0),
            ("+1s", 1_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in ["", "1", "h", "-1h", "1d", "1h ", ".s", "1..2s", "9999999999h", "1h1", "٣h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        for (seconds, text) in
            [(172_800, "48h0m0s"), (90, "1m30s"), (59, "59s"), (0, "0s"), (3601, "1h0m1s")]
        {
            assert_eq!(format_duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn incomplete_or_invalid_groups_use_defaults() {
        let of = |duration, renew_before| {
            let lives = CertificateLifetimes::from_settings(
                (duration, renew_before),
                (None, None),
                (None, None),
            );
            (lives.ca.lifetime.as_secs() / 60, lives.ca.refresh.as_secs() / 60)
        };
        for (duration, renew_before, expected) in [
            (None, None, (2880, 1440)),
            (Some("2h"), Some("30m"), (120, 90)),
            (Some("2h"), None, (2880, 1440)),
            (None, Some("30m"), (2880, 1440)),
            (Some("2h"), Some("2h"), (2880, 1440)),
            (Some("2h"), Some("3h"), (2880, 1440)),
            (Some("1m"), Some("30s"), (2880, 1440)),
            (Some("never"), Some("30m"), (2880, 1440)),
        ] {
            assert_eq!(of(duration, renew_before), expected, "{duration:?} {renew_before:?}");
        }
        let lives = CertificateLifetimes::from_settings(
            (None, None),
            (Some("10h"), Some("2h")),
            (Some("4h"), Some("1h")),
        );
        assert_eq!(lives.upload_deadline(), 3 * HOUR);
    }

    #[test]
    fn annotation_has_upstream_cdis_format() {
        let life = CertificateLifetimes::default().ca;
        assert_eq!(life.to_annotation(), r#"{"lifetime":"48h0m0s","refresh":"24h0m0s"}"#);
        assert_eq!(CertificateLifetime::from_annotation(&life.to_annotation()), Some(life));
        assert_eq!(CertificateLifetime::from_annotation("{}"), None);
        assert_eq!(CertificateLifetime::from_annotation("words"), None);
    }
}
