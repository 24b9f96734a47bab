//! For how long certificates are made, as an installation configures it.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The life of a certificate, and the age at which its successor is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// From its begin to its end.
    pub lifetime: Duration,
    /// From its begin to the begin of its successor.
    pub refresh: Duration,
}

const HOUR: Duration = Duration::from_secs(60 * 60);
/// No installation may ask for less.
const LEAST: Duration = Duration::from_secs(10 * 60);

/// The lives of all certificates of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Authorities.
    pub authority: Life,
    /// Servers.
    pub server: Life,
    /// Clients.
    pub client: Life,
}

/// Where nothing is said.
impl Default for Lifetimes {
    fn default() -> Self {
        let leaf = Life { lifetime: 24 * HOUR, refresh: 12 * HOUR };
        let authority = Life { lifetime: 48 * HOUR, refresh: 24 * HOUR };
        Self { authority, server: leaf, client: leaf }
    }
}

/// `duration` and `renewBefore`, as they are written in `spec.certConfig`.
pub type Setting<'a> = (Option<&'a str>, Option<&'a str>);

impl Lifetimes {
    /// What the three groups of `spec.certConfig` come to. A group of which only one member is there, or which cannot be,
    /// counts as if it were not there.
    pub fn from_settings(authority: Setting, server: Setting, client: Setting) -> Self {
        let default = Self::default();
        let authority = life(authority).unwrap_or(default.authority);
        let server = life(server).unwrap_or(default.server);
        Self { authority, server, client: life(client).unwrap_or(default.client) }
    }

    /// How long the server of an upload may run before its certificate, or that of its clients, is renewed.
    pub fn upload_deadline(&self) -> Duration {
        self.server.refresh.min(self.client.refresh)
    }
}

fn life((duration, renew_before): Setting) -> Option<Life> {
    let lifetime = parse_duration(duration?)?;
    let renew_before = parse_duration(renew_before?)?;
    let refresh = lifetime.checked_sub(renew_before)?;
    (lifetime >= LEAST && !refresh.is_zero()).then_some(Life { lifetime, refresh })
}

/// `48h0m0s`, as Go writes durations. `None` for what Go does not read, and for what is less than zero.
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

/// `1.5` of a unit. What is left below a nanosecond is dropped, as Go does.
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

/// As Go writes it, to the second: `48h0m0s`.
pub fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut text = String::new();
    // A String takes all that is written.
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if seconds >= 60 {
        let _ = write!(text, "{minutes}m");
    }
    let _ = write!(text, "{}s", seconds % 60);
    text
}

/// The annotation that notes which life a certificate was made for.
#[derive(Serialize, Deserialize)]
struct Noted {
    lifetime: String,
    refresh: String,
}

impl Life {
    /// `{"lifetime":"48h0m0s","refresh":"24h0m0s"}`
    pub fn note(&self) -> String {
        let (lifetime, refresh) = (show_duration(self.lifetime), show_duration(self.refresh));
        format!(r#"{{"lifetime":"{lifetime}","refresh":"{refresh}"}}"#)
    }

    /// Reads what [`note`](Self::note) writes.
    pub fn from_note(text: &str) -> Option<Self> {
        let Noted { lifetime, refresh } = serde_json::from_str(text).ok()?;
        Some(Self { lifetime: parse_duration(&lifetime)?, refresh: parse_duration(&refresh)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
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
            assert_eq!(show_duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_group_counts_when_it_is_whole_and_possible() {
        let of = |duration, renew_before| {
            let lives =
                Lifetimes::from_settings((duration, renew_before), (None, None), (None, None));
            (lives.authority.lifetime.as_secs() / 60, lives.authority.refresh.as_secs() / 60)
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
        let lives = Lifetimes::from_settings(
            (None, None),
            (Some("10h"), Some("2h")),
            (Some("4h"), Some("1h")),
        );
        assert_eq!(lives.upload_deadline(), 3 * HOUR);
    }

    #[test]
    fn a_note_is_what_others_write_and_read() {
        let life = Lifetimes::default().authority;
        assert_eq!(life.note(), r#"{"lifetime":"48h0m0s","refresh":"24h0m0s"}"#);
        assert_eq!(Life::from_note(&life.note()), Some(life));
        assert_eq!(Life::from_note("{}"), None);
        assert_eq!(Life::from_note("words"), None);
    }
}
