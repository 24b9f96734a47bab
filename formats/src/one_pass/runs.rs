//! A set of numbers that come in runs.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, stored as its runs; runs that touch are one.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<u64, u64>); // from the first number to the one behind the last

impl Runs {
    /// Memory that a run takes, about.
    pub(super) const ENTRY_BYTES: usize = 24;

    /// How many runs there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no number in it.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, &end)| number < end)
    }

    /// The run of the largest numbers.
    pub(super) fn last(&self) -> Option<Range<u64>> {
        self.0.last_key_value().map(|(&start, &end)| start..end)
    }

    pub(super) fn insert(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        let Range { mut start, mut end } = run;
        while let Some((&other_start, &other_end)) = self.0.range(..=end).next_back()
            && other_end >= start
        {
            self.0.remove(&other_start);
            start = start.min(other_start);
            end = end.max(other_end);
        }
        self.0.insert(start, end);
    }

    /// Removes `run` from the set. Returns the ranges that were in it, in descending order.
    pub(super) fn remove(&mut self, run: &Range<u64>) -> Vec<Range<u64>> {
        let mut removed = Vec::new();
        while !run.is_empty()
            && let Some((&start, &end)) = self.0.range(..run.end).next_back()
            && end > run.start
        {
            self.0.remove(&start);
            if start < run.start {
                self.0.insert(start, run.start);
            }
            if end > run.end {
                self.0.insert(run.end, end);
            }
            removed.push(start.max(run.start)..end.min(run.end));
        }
        removed
    }

    /// Empties the set and returns its runs.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Range<u64>> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|(start, end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_equal_a_plain_set(
            steps in prop::collection::vec((any::<bool>(), 0..64_u64, 0..16_u64), 0..64)
        ) {
            let (mut runs, mut plain) = (Runs::default(), BTreeSet::new());
            for (insert, start, len) in steps {
                let run = start..start + len;
                if insert {
                    runs.insert(run.clone());
                    plain.extend(run);
                } else {
                    let removed: BTreeSet<u64> = runs.remove(&run).into_iter().flatten().collect();
                    let expected = run.filter(|number| plain.remove(number)).collect();
                    prop_assert_eq!(removed, expected);
                }
                for number in 0..80 {
                    prop_assert_eq!(runs.contains(number), plain.contains(&number));
                }
                let gaps = plain.iter().filter(|&&number| !plain.contains(&(number + 1))).count();
                prop_assert_eq!(runs.len(), gaps);
            }
        }
    }
}
