//! The bearer token of a request.

use http::{HeaderMap, header};

/// The token in the header `Authorization`. `None`: no such header, another scheme, or characters that tokens do not have.
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let token = token.trim_start_matches(' ');
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    let is_good = !token.is_empty() && token.bytes().all(is_token);
    (scheme.eq_ignore_ascii_case("bearer") && is_good).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_needs_scheme_and_valid_characters() {
        for (text, expected) in [
            ("Bearer a.b-c_d~e+f/9", Some("a.b-c_d~e+f/9")),
            ("bearer x", Some("x")),
            ("BEARER   x", Some("x")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearerx", None),
            ("Bearer x y", None),
            ("Bearer x=", None),
            ("Bearer x,", None),
            ("Basic eDp5", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, text.parse().unwrap());
            assert_eq!(bearer_token(&headers), expected, "{text}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}
