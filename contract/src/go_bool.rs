//! Booleans as Go's `strconv.ParseBool` accepts them.

/// `1 t T TRUE true True 0 f F FALSE false False`, and nothing else.
pub fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_spellings_of_go_are_parsed() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(go_bool(text), Some(true), "{text}");
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(go_bool(text), Some(false), "{text}");
        }
        for text in ["", "yes", "tRUE", " true", "01", "on"] {
            assert_eq!(go_bool(text), None, "{text:?}");
        }
    }
}
