//! Parsers of sizes and durations on the command line.

use std::time::Duration;

use contract::{ByteCount, Quantity};

/// A size such as `10Gi`: a positive Kubernetes quantity.
pub fn size(text: &str) -> Result<ByteCount, String> {
    let quantity: Quantity = text.parse().map_err(|error| format!("{error}"))?;
    quantity
        .bytes()
        .filter(|_| quantity.is_positive())
        .ok_or_else(|| "the size has to be greater than zero".to_owned())
}

/// A duration: a number of seconds, or a number with `ms`, `s`, `m` or `h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number
        .parse()
        .map_err(|_| "expected a whole number with ms, s, m or h, such as 5s".to_owned())?;
    let too_long = || "the duration is too long".to_owned();
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" | "" => Ok(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs).ok_or_else(too_long),
        "h" => number.checked_mul(3600).map(Duration::from_secs).ok_or_else(too_long),
        _ => Err(format!("unknown unit {unit:?}: use ms, s, m or h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_quantities() {
        assert_eq!(size("32Mi"), Ok(ByteCount::mebibytes(32)));
        assert_eq!(size("1G"), Ok(ByteCount::new(1_000_000_000)));
        assert!(size("0").is_err() && size("-1Gi").is_err() && size("10GB").is_err());
    }

    #[test]
    fn durations_have_units() {
        for (text, expected) in [
            ("5s", Duration::from_secs(5)),
            ("5", Duration::from_secs(5)),
            ("250ms", Duration::from_millis(250)),
            ("2m", Duration::from_secs(120)),
            ("1h", Duration::from_secs(3600)),
        ] {
            assert_eq!(duration(text), Ok(expected), "{text}");
        }
        for text in
            ["", "s", "-5s", "1.5s", "5 s", "5d", "99999999999999999999s", "9999999999999999999h"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
