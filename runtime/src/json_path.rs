//! Which field of a JSON text an error is about.
//!
//! A decoder that records the path while it reads would be compiled a second time for every type. This module reads the text again
//! after an error, up to where the error is.

/// The path of the value that does not decode, such as `status.conditions[0].status`; `.` for the whole text.
pub fn path_of_error(text: &str, error: &serde_json::Error) -> String {
    let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    // The decoder has read so many bytes: the whole value that it does not accept, or nothing of it.
    let read = lines.map(str::len).sum::<usize>() + error.column();
    let (before, after) = text.as_bytes().split_at_checked(read).unwrap_or_default();
    let (before, after) = (before.trim_ascii_end(), after.trim_ascii_start());
    let is_unread = match before.last() {
        None | Some(b':' | b',') => true,
        // The first item of an array where it may not be an object or array, or an array where an object is expected.
        Some(b'[') => matches!(after.first(), Some(b'{' | b'[')),
        Some(_) => false,
    };
    path_at(text, if is_unread { before.len() } else { before.len() - 1 })
}

/// The path of the value that a byte of a JSON text belongs to. The first and the last byte of an object or array belong to it
/// itself.
fn path_at(text: &str, offset: usize) -> String {
    let bytes = text.as_bytes();
    let mut open = Vec::new();
    let mut position = 0;
    while position < offset {
        match bytes.get(position) {
            Some(b'{') => open.push(Step::Member(None)),
            Some(b'[') => open.push(Step::Item(0)),
            Some(b'}' | b']') => drop(open.pop()),
            Some(b',') => match open.last_mut() {
                Some(Step::Member(name)) => *name = None,
                Some(Step::Item(index)) => *index += 1,
                None => {}
            },
            Some(b'"') => {
                let begin = position + 1;
                let end = begin + string_len(&bytes[begin..]);
                if let Some(Step::Member(name @ None)) = open.last_mut() {
                    *name = text.get(begin..end);
                }
                position = end;
            }
            Some(_) => {}
            None => break,
        }
        position += 1;
    }
    if matches!(bytes.get(offset), Some(b'}' | b']')) && position == offset {
        open.pop();
    }
    path(&open)
}

/// The way into an open object or array.
enum Step<'a> {
    /// `None` before the member's name.
    Member(Option<&'a str>),
    Item(usize),
}

/// Bytes before the quotation mark that ends a string.
fn string_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    while let Some(byte) = bytes.get(len) {
        match byte {
            b'"' => break,
            b'\\' => len += 2,
            _ => len += 1,
        }
    }
    len
}

fn path(open: &[Step<'_>]) -> String {
    let mut path = String::new();
    for step in open {
        match step {
            Step::Member(None) => {}
            Step::Member(Some(name)) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path += name;
            }
            Step::Item(index) => path += &format!("[{index}]"),
        }
    }
    if path.is_empty() { ".".into() } else { path }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn position_is_in_the_innermost_value() {
        let text = r#"{"a":{"b":[1,{"c,\"d":"x]"},[]],"e":2},"f":null}"#;
        for (before, expected) in [
            ("", "."),
            (r#"{"a":"#, "a"),
            (r#"{"a":{"b":"#, "a.b"),
            (r#"{"a":{"b":["#, "a.b[0]"),
            (r#"{"a":{"b":[1,"#, "a.b[1]"),
            (r#"{"a":{"b":[1,{"c,\"d":"x"#, r#"a.b[1].c,\"d"#),
            (r#"{"a":{"b":[1,{"c,\"d":"x]""#, "a.b[1]"),
            (r#"{"a":{"b":[1,{"c,\"d":"x]"},["#, "a.b[2]"),
            (r#"{"a":{"b":[1,{"c,\"d":"x]"},[]"#, "a.b"),
            (r#"{"a":{"b":[1,{"c,\"d":"x]"},[]],"e":2"#, "a"),
            (r#"{"a":{"b":[1,{"c,\"d":"x]"},[]],"e":2},"f":n"#, "f"),
            (r#"{"a":{"b":[1,{"c,\"d":"x]"},[]],"e":2},"f":null"#, "."),
        ] {
            assert!(text.starts_with(before), "{before}");
            assert_eq!(path_at(text, before.len()), expected, "{before}");
        }
        for offset in 0..=text.len() + 1 {
            path_at(text, offset);
        }
        for broken in ["\"", "\"\\", "]]}", "{\"a", "\u{1F600}", ",,,"] {
            (0..=broken.len() + 1).for_each(|offset| drop(path_at(broken, offset)));
        }
    }

    /// Every value of a Pod is replaced by one of another type: the error's position leads to the field that a decoder names
    /// which records the path.
    #[test]
    fn position_of_an_error_leads_to_the_field_that_does_not_decode() {
        let pod = json!({
            "metadata": { "name": "a", "labels": { "l": "v" }, "generation": 3 },
            "spec": {
                "containers": [
                    { "name": "c", "args": ["x", "y"], "ports": [{ "containerPort": 80 }] },
                    { "name": "d", "env": [{ "name": "n", "value": "v" }] },
                ],
                "hostNetwork": true, "nodeSelector": { "n": "v" },
            },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        let mut compared = 0;
        for pointer in pointers(&pod, "") {
            for other in [json!("text"), json!(7), json!(true), json!([5]), json!({ "x": 5 })] {
                let mut changed = pod.clone();
                *changed.pointer_mut(&pointer).unwrap() = other.clone();
                let text = changed.to_string();
                let Err(error) = serde_json::from_str::<Pod>(&text) else { continue };
                let found = path_of_error(&text, &error);
                let pretty = serde_json::to_string_pretty(&changed).unwrap();
                let in_lines = serde_json::from_str::<Pod>(&pretty).unwrap_err();
                assert_eq!(path_of_error(&pretty, &in_lines), found, "{pretty}: {in_lines}");
                let mut deserializer = serde_json::Deserializer::from_str(&text);
                let expected = serde_path_to_error::deserialize::<_, Pod>(&mut deserializer);
                let expected = expected.unwrap_err().path().to_string();
                assert_eq!(found, expected, "{pointer} is {other}: {error}");
                compared += 1;
            }
        }
        assert!(compared > 60, "{compared}");
    }

    fn pointers(value: &Value, to: &str) -> Vec<String> {
        let mut all = vec![to.to_owned()];
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(k, v)| all.extend(pointers(v, &format!("{to}/{k}"))));
            }
            Value::Array(items) => {
                let each = items.iter().enumerate();
                each.for_each(|(i, v)| all.extend(pointers(v, &format!("{to}/{i}"))));
            }
            _ => {}
        }
        all
    }
}
