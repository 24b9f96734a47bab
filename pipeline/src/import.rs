//! One import from end to end.
