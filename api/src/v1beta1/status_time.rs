//! Times in a status, as far as they can be read.
//!
//! A namespace editor may write the status of several kinds, and the API server's check of `format: date-time` is weaker
//! than RFC 3339: it takes the offset `+99:99`, any character before the fraction, fractions of any length, text behind the
//! zone, and even a list. No controller decides by such a time, so an unreadable one is no reason to refuse the object.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// So many digits of a fraction are read, as Go does; further ones are dropped.
const FRACTION_LEN_MAX: usize = 9;

/// Reads the time of a status; `None` for null and for everything that is no time.
pub(super) fn deserialize<'de, D>(deserializer: D) -> Result<Option<Time>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(AnyValue)
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Option<Time>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a time")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(parse(text).or_else(|| parse(&with_short_fraction(text)?)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        value.deserialize_any(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

fn parse(text: &str) -> Option<Time> {
    text.parse().ok().map(Time)
}

/// The text with no more than [`FRACTION_LEN_MAX`] digits behind its point. `None`: it has no more.
fn with_short_fraction(text: &str) -> Option<String> {
    let (head, tail) = text.split_once('.')?;
    let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
    (digits > FRACTION_LEN_MAX)
        .then(|| format!("{head}.{}{}", &tail[..FRACTION_LEN_MAX], &tail[digits..]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::v1beta1::Condition;

    #[test]
    fn status_times_read_what_the_api_server_accepts() {
        let readable = json!("2020-01-01T00:00:00Z");
        let table = [
            ("a time", json!("2020-01-01T00:00:00Z"), Some(&readable)),
            ("an offset", json!("2020-01-01T02:00:00+02:00"), Some(&readable)),
            ("lower case", json!("2020-01-01t00:00:00z"), Some(&readable)),
            ("nine digits", json!("2020-01-01T00:00:00.123456789Z"), Some(&readable)),
            ("ten digits", json!("2020-01-01T00:00:00.1234567891Z"), Some(&readable)),
            (
                "forty digits",
                json!(format!("2020-01-01T00:00:00.{}Z", "1".repeat(40))),
                Some(&readable),
            ),
            ("an offset of no zone", json!("2020-01-01T00:00:00+99:99"), None),
            ("a fraction without a point", json!("2020-01-01T00:00:00x5Z"), None),
            ("text behind the zone", json!("2020-01-01T00:00:00Ztgarbage"), None),
            ("a fraction before something else", json!("2020-01-01T00:00:00.12345678901é"), None),
            ("nothing", json!(""), None),
            ("null", Value::Null, None),
            ("a list", json!([1, ["2020-01-01T00:00:00Z"], {}]), None),
            ("an object", json!({ "seconds": 5 }), None),
            ("a number", json!(5), None),
            ("a fractional number", json!(-5.5), None),
            ("a boolean", json!(true), None),
        ];
        for (case, time, expected) in table {
            let condition =
                json!({ "type": "Ready", "status": "True", "lastTransitionTime": time });
            let read: Condition = serde_json::from_value(condition.clone()).expect(case);
            let from_text: Condition = serde_json::from_str(&condition.to_string()).expect(case);
            assert_eq!(read, from_text, "{case}");
            let written = serde_json::to_value(&read).expect(case);
            let second = written["lastTransitionTime"].as_str().map(|text| {
                // Fractions are kept or not; the second is what counts.
                json!(format!("{}Z", &text[..19]))
            });
            assert_eq!(second.as_ref(), expected, "{case}");
        }
    }
}
