//! Fair admission of workers and polls: which namespace may start one more.
//!
//! The counted objects are in the namespaces of users, who may create PVCs and pods that look like those of the
//! controllers, and may have sources that never end. So running work is counted by namespace, and only if a PVC of
//! these controllers proves it: whatever users do in their namespace, they cannot block other namespaces.

use std::collections::BTreeMap;

/// How much is running, by the namespace that requested it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningByNamespace(BTreeMap<String, usize>);

impl RunningByNamespace {
    /// Whether this namespace may start one more, if `most` may run: while fewer run; and if nothing of the namespace
    /// runs, even at the limit, as long as at most `most` namespaces have something running. So at most twice as much
    /// runs.
    pub fn may_start(&self, namespace: &str, most: usize) -> bool {
        let total: usize = self.0.values().sum();
        total < most || !self.0.contains_key(namespace) && self.0.len() <= most
    }
}

/// From the namespace of each running item.
impl<'a> FromIterator<&'a str> for RunningByNamespace {
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
    fn admission_decision_table() {
        // Namespaces of what is running, the namespace that requests a start, the limit, and the result.
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
        for (running, namespace, most, expected) in table {
            let all: RunningByNamespace = running.iter().copied().collect();
            assert_eq!(all.may_start(namespace, most), expected, "{running:?} {namespace} {most}");
        }
    }

    proptest! {
        #[test]
        fn at_most_twice_the_limit_is_running(
            most in 1_usize..5,
            // The namespace that would start one, or the index of the one that ends.
            events in prop::collection::vec((any::<bool>(), 0_usize..12), 0..200),
        ) {
            let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
            let mut running: Vec<&str> = Vec::new();
            for (starts, number) in events {
                let all: RunningByNamespace = running.iter().copied().collect();
                if starts && all.may_start(&names[number], most) {
                    running.push(&names[number]);
                } else if !starts && !running.is_empty() {
                    running.swap_remove(number % running.len());
                }
                prop_assert!(running.len() <= 2 * most);
                let of_one = |name: &String| running.iter().filter(|one| *one == name).count();
                prop_assert!(names.iter().all(|name| of_one(name) <= most));
            }
        }
    }
}
