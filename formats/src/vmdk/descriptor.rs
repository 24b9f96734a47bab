//! The text that describes a disk: which files it consists of, and whether it is a difference.

use crate::Error;

/// Kinds that stand alone in one file.
const KINDS: [&str; 2] = ["monolithicSparse", "streamOptimized"];
const TEXT_MAX: usize = 200;

/// Refuses a descriptor that is all there is of an image: its data is in other files.
pub(super) fn refuse_alone(text: &[u8]) -> Error {
    let text = String::from_utf8_lossy(text);
    match check_parent(&text) {
        Err(error) => error,
        Ok(()) => other_extents(&text),
    }
}

/// Refuses the descriptor inside an image, if it describes more than this image.
pub(super) fn check(text: &[u8]) -> Result<(), Error> {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let text = String::from_utf8_lossy(&text[..end]);
    check_parent(&text)?;
    let kind = value(&text, "createType").unwrap_or_default();
    let mut extents = extents(&text);
    let first = extents.next();
    let alone = first.is_some_and(|(kind, _)| kind == "SPARSE") && extents.next().is_none();
    if !alone || !KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
        return Err(other_extents(&text));
    }
    Ok(())
}

fn check_parent(text: &str) -> Result<(), Error> {
    let parent = value(text, "parentCID").unwrap_or("ffffffff");
    let name = value(text, "parentFileNameHint");
    if !parent.eq_ignore_ascii_case("ffffffff") || name.is_some() {
        return Err(Error::BackingFile { name: readable(name.unwrap_or_default()) });
    }
    Ok(())
}

fn other_extents(text: &str) -> Error {
    let kind = readable(value(text, "createType").unwrap_or("of no known kind"));
    let named = extents(text).map(|(_, name)| name).next();
    Error::OtherExtents { kind, name: readable(named.unwrap_or_default()) }
}

/// The value of a key, without its quotes.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case(key))?;
    Some(value.trim().trim_matches('"'))
}

/// Kind and file of each extent: `RW 4192256 SPARSE "disk.vmdk"`.
fn extents(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let access = words.next()?;
        if !["RW", "RDONLY", "NOACCESS"].contains(&access) {
            return None;
        }
        let kind = words.nth(1)?;
        Some((kind, line.split('"').nth(1).unwrap_or_default()))
    })
}

/// Text of an image, fit for a message.
fn readable(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect::<String>().escape_debug().to_string()
}
