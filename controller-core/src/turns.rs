//! Who may begin while others are at work.
//!
//! Whatever is counted lies in the namespaces of users, who may make claims and pods that look like ours, and may have sources
//! that never end. So what is at work is counted by namespace, only what a claim that we mind proves is counted at all, and
//! nobody can keep other namespaces from their work by anything that they do in their own.

use std::collections::BTreeMap;

/// How much is at work, by the namespace of whoever asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtWork(BTreeMap<String, usize>);

impl AtWork {
    /// Whether one more of this namespace may begin, if `most` may be at work: while there is room; and where nothing is at
    /// work of a namespace, although others have all the room, as long as there are not more of them than `most`. So twice
    /// as much may be at work, and no more.
    pub fn lets_begin(&self, namespace: &str, most: usize) -> bool {
        let total: usize = self.0.values().sum();
        total < most || !self.0.contains_key(namespace) && self.0.len() <= most
    }
}

/// Of the namespaces of all that is at work.
impl<'a> FromIterator<&'a str> for AtWork {
    fn from_iter<I: IntoIterator<Item = &'a str>>(namespaces: I) -> Self {
        let mut all = Self::default();
        for namespace in namespaces {
            match all.0.get_mut(namespace) {
                Some(count) => *count += 1,
                None => drop(all.0.insert(namespace.to_owned(), 1)),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_namespace_has_its_turn_whoever_is_at_work() {
        // What is at work, who asks, how much may be, and the answer.
        let table: [(&[&str], &str, usize, bool); 10] = [
            (&[], "a", 1, true),
            (&["a"], "a", 1, false),
            (&["a"], "b", 1, true),
            (&["a", "b"], "c", 1, false),
            (&["a", "b"], "a", 3, true),
            (&["a", "b", "b"], "a", 3, false),
            (&["a", "b", "b"], "c", 3, true),
            (&["a", "b", "c"], "d", 3, true),
            (&["a", "b", "c", "d"], "e", 3, false),
            (&["a"; 100], "b", 3, true),
        ];
        for (at_work, namespace, most, expected) in table {
            let all: AtWork = at_work.iter().copied().collect();
            assert_eq!(all.lets_begin(namespace, most), expected, "{at_work:?} {namespace} {most}");
        }
    }

    proptest! {
        #[test]
        fn no_more_than_twice_as_much_is_ever_at_work(
            most in 1_usize..5,
            // Whose turn it would be, or which of those at work is done.
            events in prop::collection::vec((any::<bool>(), 0_usize..12), 0..200),
        ) {
            let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
            let mut at_work: Vec<&str> = Vec::new();
            for (begins, number) in events {
                let all: AtWork = at_work.iter().copied().collect();
                if begins && all.lets_begin(&names[number], most) {
                    at_work.push(&names[number]);
                } else if !begins && !at_work.is_empty() {
                    at_work.swap_remove(number % at_work.len());
                }
                prop_assert!(at_work.len() <= 2 * most);
                let of_one = |name: &String| at_work.iter().filter(|one| *one == name).count();
                prop_assert!(names.iter().all(|name| of_one(name) <= most));
            }
        }
    }
}
