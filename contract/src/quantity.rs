//! Kubernetes quantities: `10Gi`, `500M`, `1.5e9`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::byte_count::ByteCount;

/// A Kubernetes quantity, exact to a billionth, which is as fine as Kubernetes keeps them (it too rounds up, away from
/// zero). At most 2^63 - 1 either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    negative: bool,
    /// The absolute value, times 10^9.
    billionths: u128,
}

const BILLION: u128 = 1_000_000_000;
const VALUE_MAX: u128 = i64::MAX as u128 * BILLION;
/// Enough for every whole number up to 2^63, and few enough that 10^20 × 2^60 fits 128 bits.
const DIGITS_MAX: usize = 20;

impl Quantity {
    /// No bytes.
    pub const ZERO: Self = Self { negative: false, billionths: 0 };

    /// The size, rounded up to a whole byte; `None` when it is less than zero.
    pub fn bytes(self) -> Option<ByteCount> {
        if self.negative {
            return None;
        }
        u64::try_from(self.billionths.div_ceil(BILLION)).ok().map(ByteCount::new)
    }

    /// Whether it is greater than zero.
    pub fn is_positive(self) -> bool {
        !self.negative && self.billionths > 0
    }
}

/// The message of Kubernetes' own parser, which clients match.
const FORMAT: &str = "quantities must match the regular expression \
                      '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadQuantity {
    /// No digits before the suffix.
    #[error(
        "{text:?} is no quantity: it has to begin with a decimal number, as in 10Gi or 1.5G; {}",
        FORMAT
    )]
    Number {
        /// The text, truncated to 40 characters.
        text: String,
    },
    /// The number is followed by something unknown.
    #[error(
        "{text:?} is no quantity: its suffix has to be one of Ki, Mi, Gi, Ti, Pi, Ei, n, u, m, k, M, G, T, P, E, \
         or an exponent such as e9; {}",
        FORMAT
    )]
    Suffix {
        /// The text, truncated to 40 characters.
        text: String,
    },
    /// More digits than any size needs.
    #[error("{text:?} has more than 20 significant digits")]
    TooPrecise {
        /// The text, truncated to 40 characters.
        text: String,
    },
    /// Kubernetes uses signed 64-bit numbers.
    #[error("{text:?} is larger than 2^63 - 1")]
    TooLarge {
        /// The text, truncated to 40 characters.
        text: String,
    },
}

/// What a suffix multiplies by: 2^`twos` × 10^`tens`.
struct Scale {
    twos: u32,
    tens: i32,
}

fn scale(suffix: &str) -> Option<Scale> {
    let (twos, tens) = match suffix {
        "" => (0, 0),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        _ => (0, exponent(suffix)?),
    };
    Some(Scale { twos, tens })
}

/// The number of `e9`, `E-3`, `e+6`. Four digits are more than any value within the limits needs.
fn exponent(suffix: &str) -> Option<i32> {
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    let plain = (1..=4).contains(&unsigned.len()) && unsigned.bytes().all(|b| b.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

impl FromStr for Quantity {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let shown = || text.chars().take(40).collect::<String>();
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let end = unsigned.find(|c| !is_number(c)).unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(BadQuantity::Number { text: shown() });
        }
        let scale = scale(suffix).ok_or_else(|| BadQuantity::Suffix { text: shown() })?;

        // The number is `digits` × 10^-`fraction.len()`, and zeroes at its ends do not change it.
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let fraction = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        if digits.len() > DIGITS_MAX {
            return Err(BadQuantity::TooPrecise { text: shown() });
        }
        let digits: u128 = if digits.is_empty() {
            0
        } else {
            digits.parse().map_err(|_| BadQuantity::Number { text: shown() })?
        };
        let billionths = power_of_ten(
            digits << scale.twos,
            scale.tens.saturating_sub(fraction).saturating_add(9),
        )
        .filter(|value| *value <= VALUE_MAX)
        .ok_or_else(|| BadQuantity::TooLarge { text: shown() })?;
        Ok(Self { negative: text.starts_with('-') && billionths > 0, billionths })
    }
}

/// `value` × 10^`power`, rounded up; `None` where that passes 2^128.
fn power_of_ten(value: u128, power: i32) -> Option<u128> {
    if value == 0 {
        return Some(0);
    }
    let factor = 10_u128.checked_pow(power.unsigned_abs());
    match (factor, power >= 0) {
        (Some(factor), true) => value.checked_mul(factor),
        (None, true) => None,
        (Some(factor), false) => Some(value.div_ceil(factor)),
        (None, false) => Some(1), // less than the least, and more than nothing
    }
}

/// With the largest suffix that leaves a whole number: binary ones first (`10Gi`), else decimal (`1G`, `1500m`).
impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [&str; 6] = ["Ei", "Pi", "Ti", "Gi", "Mi", "Ki"];
        const DECIMAL: [&str; 9] = ["E", "P", "T", "G", "M", "k", "", "m", "u"];
        let whole = self.billionths / BILLION;
        let exact = self.billionths.is_multiple_of(BILLION) && whole > 0;
        let binary = (10..=60).rev().step_by(10).zip(BINARY);
        let decimal = (0..=27).rev().step_by(3).zip(DECIMAL);
        let (number, suffix) = binary
            .filter(|(bits, _)| exact && whole.is_multiple_of(1 << bits))
            .map(|(bits, suffix)| (whole >> bits, suffix))
            .chain(
                decimal
                    .map(|(tens, suffix)| (10_u128.pow(tens), suffix))
                    .filter(|(unit, _)| self.billionths.is_multiple_of(*unit))
                    .map(|(unit, suffix)| (self.billionths / unit, suffix)),
            )
            .next()
            .unwrap_or((self.billionths, "n"));
        let sign = if self.negative { "-" } else { "" };
        // Nothing is divisible by everything.
        let suffix = if self.billionths == 0 { "" } else { suffix };
        formatter.pad(&format!("{sign}{number}{suffix}"))
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntOrString)
    }
}

/// On the wire a quantity is a string or a bare number.
struct IntOrString;

impl Visitor<'_> for IntOrString {
    type Value = Quantity;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a quantity such as 10Gi")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        text.parse::<Quantity>().unwrap().bytes().map(ByteCount::get)
    }

    #[test]
    fn every_suffix_has_its_exact_value() {
        for (text, expected) in [
            ("0", 0),
            ("1", 1),
            ("1073741824", 1 << 30),
            ("1Ki", 1 << 10),
            ("500Mi", 500 << 20),
            ("2Gi", 2 << 30),
            ("10Gi", 10 << 30),
            ("3Ti", 3 << 40),
            ("1Pi", 1 << 50),
            ("7Ei", 7 << 60),
            ("1k", 1_000),
            ("500M", 500_000_000),
            ("1G", 1_000_000_000),
            ("1T", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1E3", 1_000),
            ("1e3", 1_000),
            ("1.5e+9", 1_500_000_000),
            ("15e-1", 2),
            ("1.5Gi", 3 << 29),
            (".5Ki", 512),
            ("5.Ki", 5 << 10),
            ("+1Mi", 1 << 20),
            ("0.1Gi", 107_374_183), // 107374182.4
            ("1500m", 2),
            ("1u", 1),
            ("1n", 1),
            ("0.0000000001", 1),
            ("1e-9999", 1),
            ("0e9999", 0),
            ("-0", 0),
            ("0000000000000000000000000001", 1),
            ("1.0000000000000000000000000000", 1),
            ("9223372036854775807", i64::MAX as u64),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        assert_eq!(bytes("-1Gi"), None);
        assert_eq!(bytes("-1n"), None);
    }

    #[test]
    fn invalid_quantity_names_its_error() {
        let number = |text: &str| BadQuantity::Number { text: text.into() };
        let suffix = |text: &str| BadQuantity::Suffix { text: text.into() };
        let large = |text: &str| BadQuantity::TooLarge { text: text.into() };
        for text in ["", "Gi", "-", ".", "1.2.3", "..", "--1", "+-1", " 1", "٣"] {
            assert_eq!(text.parse::<Quantity>(), Err(number(text)), "{text}");
        }
        for text in [
            "10GB", "1K", "1 Gi", "1gi", "1e", "1e+", "1e1.5", "1Gi ", "1e99999", "1e+-3", "1eK",
            "1Eii",
        ] {
            assert_eq!(text.parse::<Quantity>(), Err(suffix(text)), "{text}");
        }
        for text in [
            "9223372036854775808",
            "8Ei",
            "10E",
            "1e19",
            "1e9999",
            "-8Ei",
            "99999999999999999999Ei",
        ] {
            assert_eq!(text.parse::<Quantity>(), Err(large(text)), "{text}");
        }
        let digits = "123456789012345678901";
        assert_eq!(
            digits.parse::<Quantity>(),
            Err(BadQuantity::TooPrecise { text: digits.into() })
        );
        let flood = "1".repeat(1 << 20);
        assert!(flood.parse::<Quantity>().unwrap_err().to_string().len() < 100);
    }

    #[test]
    fn a_quantity_is_shown_with_the_largest_suffix() {
        for (text, expected) in [
            ("10240Mi", "10Gi"),
            ("1G", "1G"),
            ("1000", "1k"),
            ("1024", "1Ki"),
            ("1001", "1001"),
            ("1000Ki", "1000Ki"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("-3Gi", "-3Gi"),
            ("1500u", "1500u"),
            ("7n", "7n"),
            ("0", "0"),
            ("0Gi", "0"),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().to_string(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.eEKMGTPinumk ]{0,40}") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn whole_numbers_are_exact(number in 0_u64..=i64::MAX as u64) {
            prop_assert_eq!(bytes(&number.to_string()), Some(number));
            let shown = number.to_string().parse::<Quantity>().unwrap().to_string();
            prop_assert_eq!(bytes(&shown), Some(number));
        }

        #[test]
        fn decimals_agree_with_long_division(whole in 0_u64..1 << 20, thousandths in 0_u64..1000) {
            let exact = (u128::from(whole) * 1000 + u128::from(thousandths)) << 30;
            let expected = exact.div_ceil(1000) as u64;
            prop_assert_eq!(bytes(&format!("{whole}.{thousandths:03}Gi")), Some(expected));
        }

        #[test]
        fn shown_value_parses_to_the_same(negative: bool, billionths in 0..=VALUE_MAX / 1000) {
            let quantity = Quantity { negative: negative && billionths > 0, billionths };
            if let Ok(again) = quantity.to_string().parse::<Quantity>() {
                prop_assert_eq!(again, quantity);
            } else {
                prop_assert!(billionths > 10_u128.pow(20)); // more digits than are read
            }
        }
    }
}
