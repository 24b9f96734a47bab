//! Names in an archive, and where links in it lead: checked as text, before anything is opened.

use super::tree::{EntryError, refused};

const PATH_LEN_MAX: usize = 4096; // PATH_MAX
const DEPTH_MAX: usize = 256;

/// The parts of a name that leads nowhere but down.
pub fn parts(path: &[u8]) -> Result<Vec<&[u8]>, EntryError> {
    if path.starts_with(b"/") {
        return Err(refused("is an absolute name, and those are not unpacked"));
    }
    if path.len() >= PATH_LEN_MAX {
        return Err(refused("is too long a name"));
    }
    let parts: Vec<_> =
        path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.iter().any(|part| *part == b"..") {
        return Err(refused("is a name with '..', and those are not unpacked"));
    }
    if parts.len() > DEPTH_MAX {
        return Err(refused("lies too deep"));
    }
    Ok(parts)
}

/// A link of an entry that lies `depth` directories deep leads up only at its beginning, and not out.
pub fn check_link(target: &[u8], depth: usize) -> Result<(), EntryError> {
    let out = || refused("is a link that leads out of the folder, and those are not unpacked");
    if target.starts_with(b"/") || target.is_empty() || target.len() >= PATH_LEN_MAX {
        return Err(out());
    }
    let mut parts = target
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .peekable();
    let mut ups = 0;
    while parts.next_if(|part| *part == b"..").is_some() {
        ups += 1;
    }
    // Behind a name that is itself a link, `..` leads who knows where.
    if ups > depth || parts.any(|part| part == b"..") { Err(out()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_lead_down_only() {
        let table: [(&str, Option<usize>); 9] = [
            ("a/b", Some(2)),
            ("./a//b/.", Some(2)),
            ("./", Some(0)),
            ("...", Some(1)),
            ("/a", None),
            ("..", None),
            ("a/../b", None),
            ("a/..", None),
            ("a/..b", Some(2)),
        ];
        for (path, expected) in table {
            assert_eq!(parts(path.as_bytes()).ok().map(|parts| parts.len()), expected, "{path}");
        }
        assert!(parts(&[b'a'; PATH_LEN_MAX]).is_err());
        assert!(parts("a/".repeat(DEPTH_MAX + 1).as_bytes()).is_err());
    }

    #[test]
    fn links_lead_up_no_further_than_they_lie_deep() {
        let table = [
            ("a", 0, true),
            ("../a", 1, true),
            ("../../a/b", 2, true),
            ("./../a", 1, true),
            ("..", 1, true),
            ("../a", 0, false),
            ("../../a", 1, false),
            ("a/..", 0, false), // `a` may be a link itself
            ("a/../../b", 1, false),
            ("../a/..", 2, false),
            ("/etc", 9, false),
            ("", 0, false),
        ];
        for (target, depth, expected) in table {
            assert_eq!(
                check_link(target.as_bytes(), depth).is_ok(),
                expected,
                "{target} at {depth}"
            );
        }
    }

    proptest! {
        #[test]
        fn accepted_names_contain_no_parent_component(path in "[a./]{0,20}") {
            if let Ok(parts) = parts(path.as_bytes()) {
                prop_assert!(parts.iter().all(|part| !part.is_empty() && *part != b".." && *part != b"."));
            }
        }
    }
}
