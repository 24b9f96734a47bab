//! Finds functions in the text of Rust sources, for documents that name them.

/// Whether the source declares a function of this name.
pub fn has_function(source: &str, name: &str) -> bool {
    source.lines().any(|line| declares(line, name))
}

/// Whether the source declares a function of this name under an attribute such as `#[test]` or `#[tokio::test(..)]`.
pub fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    (0..lines.len()).filter(|&at| declares(lines[at], name)).any(|at| {
        let above = lines[..at].iter().rev();
        above.take_while(|line| line.starts_with("#[") || line.starts_with("//")).any(|line| {
            let attribute = line.strip_prefix("#[").unwrap_or_default();
            let path = attribute.split(['(', ']']).next().unwrap_or_default();
            path.rsplit("::").next() == Some("test")
        })
    })
}

/// Whether the source has an `impl` block of this type, or declares it as a trait.
pub fn has_methods_of(source: &str, type_name: &str) -> bool {
    source.lines().map(str::trim).any(|line| {
        let is_block = line.starts_with("impl") || line.contains("trait ");
        is_block && words(line).any(|word| word == type_name)
    })
}

fn declares(line: &str, name: &str) -> bool {
    line.match_indices("fn ").any(|(at, _)| {
        let is_keyword = at == 0 || line[..at].ends_with([' ', '(']);
        is_keyword && words(&line[at + 3..]).next() == Some(name)
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        /// Not a function: `fn absent`.
        pub async fn plain<T>(x: T) {}
        impl<K: Kind> Cache<K> {
            fn method(&self) { absent() }
        }
        #[tokio::test(start_paused = true)]
        // Why.
        async fn timed() {}
        #[test]
        #[should_panic(expected = \"x\")]
        fn panics() {}
        #[expect(clippy::test)]
        fn helper() {}
    ";

    #[test]
    fn functions_are_found_by_their_whole_name() {
        for name in ["plain", "method", "timed", "panics", "helper"] {
            assert!(has_function(SOURCE, name), "{name}");
        }
        for name in ["plai", "metho", "Cache", ""] {
            assert!(!has_function(SOURCE, name), "{name}");
        }
    }

    #[test]
    fn only_functions_with_a_test_attribute_are_tests() {
        let found = ["plain", "method", "timed", "panics"].map(|name| has_test(SOURCE, name));
        assert_eq!(found, [false, false, true, true]);
    }

    #[test]
    fn methods_need_a_block_of_their_type() {
        let found = ["Cache", "Kind", "Cach", "Queue"].map(|name| has_methods_of(SOURCE, name));
        assert_eq!(found, [true, true, false, false]);
    }
}
