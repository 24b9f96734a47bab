//! Lists of hashes: `SHA256SUMS` as `sha256sum` writes it, and `CHECKSUM` as BSD's `sha256` does.

use contract::Checksum;
use percent_encoding::percent_decode_str;

const DIGITS: usize = 64;

/// The last part of an address's path.
pub(super) fn file_name(location: &str) -> Option<String> {
    let path = location.split(['?', '#']).next().unwrap_or_default();
    let (_, rest) = path.split_once("://")?;
    let (_, name) = rest.rsplit_once('/')?;
    let name = percent_decode_str(name).decode_utf8().ok()?;
    (!name.is_empty()).then(|| name.into_owned())
}

/// The hash of a file. Lines that are none of a hash are left out: such a list may be signed.
pub(super) fn find(text: &str, name: &str) -> Result<Checksum, &'static str> {
    let mut found = None;
    for (hash, listed) in text.lines().filter_map(line) {
        let listed = listed.rsplit_once('/').map_or(listed, |(_, last)| last);
        if listed != name {
            continue;
        }
        let hash = format!("sha256:{}", hash.to_ascii_lowercase());
        let hash: Checksum = hash.parse().map_err(|_| "one of its hashes is none")?;
        if found.is_some_and(|before| before != hash) {
            return Err("it lists the image with two hashes");
        }
        found = Some(hash);
    }
    found.ok_or("it does not list the image with a SHA-256 hash")
}

/// `hash  name`, `hash *name` or `SHA256 (name) = hash`.
fn line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_end();
    let is_hash = |text: &str| text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some(rest) = line.strip_prefix("SHA256 (") {
        let (name, hash) = rest.rsplit_once(") = ")?;
        return is_hash(hash).then_some((hash, name));
    }
    let (hash, rest) = line.split_once(' ')?;
    let name = rest.strip_prefix([' ', '*']).unwrap_or(rest);
    is_hash(hash).then_some((hash, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    const B: &str = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752";

    #[test]
    fn a_file_is_found_in_each_kind_of_list() {
        let table = [
            (format!("{B}  other.img\n{A}  disk.img\n"), Ok(A)),
            (format!("{A} *disk.img\n"), Ok(A)),
            (format!("{A}  ./images/disk.img\r\n"), Ok(A)),
            (format!("{}  disk.img", A.to_uppercase()), Ok(A)),
            (format!("# disk.img: 12 bytes\nSHA256 (disk.img) = {A}\n"), Ok(A)),
            (
                format!(
                    "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{A}  disk.img\n-----END"
                ),
                Ok(A),
            ),
            (format!("{A}  disk.img\n{A}  disk.img\n"), Ok(A)),
            (format!("{A}  disk.img\n{B}  disk.img\n"), Err("it lists the image with two hashes")),
            (format!("{A}  disk.img.gz\n{B}  my-disk.img"), Err("it does not list")),
            ("d41d8cd98f00b204e9800998ecf8427e  disk.img".into(), Err("it does not list")),
            (format!("SHA512 (disk.img) = {A}{B}"), Err("it does not list")),
            (String::new(), Err("it does not list")),
        ];
        for (text, expected) in table {
            match (find(&text, "disk.img"), expected) {
                (Ok(found), Ok(hash)) => assert_eq!(found.to_string(), format!("sha256:{hash}")),
                (Err(message), Err(phrase)) => assert!(message.starts_with(phrase), "{message}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_file_of_an_address_is_the_last_of_its_path() {
        for (location, expected) in [
            ("https://host/a/disk.img", Some("disk.img")),
            ("https://host/a/disk%20one.img?sig=/x#y", Some("disk one.img")),
            ("s3://bucket/key", Some("key")),
            ("https://host/", None),
            ("https://host", None),
            ("disk.img", None),
        ] {
            assert_eq!(file_name(location).as_deref(), expected, "{location}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_lists_are_read_or_refused(text in "\\PC{0,200}", name in "[a-z.]{1,8}") {
            let _ = find(&text, &name);
        }
    }
}
