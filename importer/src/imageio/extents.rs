//! The extents that the image server reports: which parts of an image are zero.

use pipeline::{Extent, ExtentKind};
use serde::Deserialize;

/// More of them, neighbours of a kind merged, are not believed: a disk of 1 TiB in pieces of 1 MiB has as many.
const EXTENTS_MAX: usize = 1 << 20;

/// As on the wire. `hole`, whether it is allocated, is not used.
#[derive(Deserialize)]
struct ServedExtent {
    start: u64,
    length: u64,
    #[serde(default)]
    zero: bool,
}

/// The extents of an image of `size` bytes: ascending, without gaps. Or what is wrong with the list.
pub(super) fn parse(json: &[u8], size: u64) -> Result<Vec<Extent>, String> {
    let served_extents: Vec<ServedExtent> = serde_json::from_slice(json)
        .map_err(|error| format!("its list of extents is not one (line {})", error.line()))?;
    let mut extents: Vec<Extent> = vec![];
    let mut at = 0;
    let mut add = |to: u64, kind: ExtentKind| {
        match extents.last_mut() {
            Some(last) if last.kind == kind => last.range.end = to,
            _ if at == to => {}
            _ => extents.push(Extent { range: at..to, kind }),
        }
        at = at.max(to);
        extents.len() <= EXTENTS_MAX
    };
    let mut end = 0;
    for ServedExtent { start, length, zero } in served_extents {
        let to = start.checked_add(length).filter(|to| *to <= size);
        let Some(to) = to else { return Err(format!("an extent ends behind byte {size}")) };
        if start < end {
            return Err(format!("its extents are not ascending at byte {start}"));
        }
        end = to;
        let kind = if zero { ExtentKind::Zero } else { ExtentKind::Data };
        // Of what lies between two nothing is known: it is read.
        if !(add(start, ExtentKind::Data) && add(to, kind)) {
            return Err(format!("more than {EXTENTS_MAX} extents"));
        }
    }
    add(size, ExtentKind::Data);
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_extents_is_completed_or_rejected() {
        let (data, zero) = (ExtentKind::Data, ExtentKind::Zero);
        type Expected = Result<Vec<(u64, u64, ExtentKind)>, &'static str>;
        let table: [(&str, Expected); 8] = [
            ("[]", Ok(vec![(0, 100, data)])),
            (r#"[{"start":0,"length":100,"zero":true,"hole":true}]"#, Ok(vec![(0, 100, zero)])),
            (
                r#"[{"start":0,"length":10},{"start":10,"length":5,"zero":false},
                    {"start":15,"length":5,"zero":true},{"start":20,"length":5,"zero":true}]"#,
                Ok(vec![(0, 15, data), (15, 25, zero), (25, 100, data)]),
            ),
            (r#"[{"start":30,"length":70,"zero":true}]"#, Ok(vec![(0, 30, data), (30, 100, zero)])),
            (r#"[{"start":10,"length":10},{"start":0,"length":10}]"#, Err("not ascending")),
            (r#"[{"start":90,"length":11}]"#, Err("behind byte 100")),
            (r#"[{"start":1,"length":18446744073709551615}]"#, Err("behind byte 100")),
            (r#"{"start":90}"#, Err("is not one")),
        ];
        for (json, expected) in table {
            let found = parse(json.as_bytes(), 100);
            match expected {
                Ok(expected) => {
                    let list = found.unwrap().into_iter();
                    let list: Vec<_> = list.map(|e| (e.range.start, e.range.end, e.kind)).collect();
                    assert_eq!(list, expected, "{json}");
                }
                Err(text) => assert!(found.unwrap_err().contains(text), "{json}"),
            }
        }
    }
}
