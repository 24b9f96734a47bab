//! Where a redirect may lead, and what is taken along.

use url::Url;

/// Redirects followed for one request. curl gives up after 50, browsers after 20; images are behind one or two.
pub(super) const REDIRECTS_MAX: usize = 10;

/// An address, and whether it may see the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RedirectTarget {
    pub(super) url: Url,
    /// Same scheme, host and port as the address that the credentials were given for, all the way.
    pub(super) trusted: bool,
}

impl RedirectTarget {
    /// Address of the redirect, with credentials.
    pub(super) fn origin(url: Url) -> Self {
        Self { url, trusted: true }
    }
}

/// The place that `location` names, seen from `from`; `passed` are the URLs requested before. Or why not.
pub(super) fn follow(
    from: &RedirectTarget,
    location: &str,
    passed: &[Url],
) -> Result<RedirectTarget, String> {
    if passed.len() > REDIRECTS_MAX {
        return Err(format!("more than {REDIRECTS_MAX} of them"));
    }
    let mut url =
        from.url.join(location).map_err(|error| format!("one leads nowhere ({error})"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(format!("one leads to a {}:// address", url.scheme()));
    }
    url.set_fragment(None);
    // Credentials that the redirecting server chose are not ours to send.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    if passed.contains(&url) {
        return Err("they lead in a circle".into());
    }
    let trusted = from.trusted && url.origin() == from.url.origin();
    Ok(RedirectTarget { url, trusted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_keep_credentials_only_within_an_origin() {
        let table = [
            ("https://a/x", "/y", Ok(("https://a/y", true))),
            ("https://a/x", "y?sig=1#part", Ok(("https://a/y?sig=1", true))),
            ("https://a/x", "https://a:443/y", Ok(("https://a/y", true))),
            ("https://a/x", "https://A/y", Ok(("https://a/y", true))),
            ("https://a/x", "https://a:444/y", Ok(("https://a:444/y", false))),
            ("https://a/x", "http://a/y", Ok(("http://a/y", false))),
            ("http://a/x", "https://a/y", Ok(("https://a/y", false))),
            ("https://a/x", "https://b.a/y", Ok(("https://b.a/y", false))),
            ("https://a/x", "//b/y", Ok(("https://b/y", false))),
            ("https://a/x", "https://user:word@a/y", Ok(("https://a/y", true))),
            ("https://a/x", "https://a/x", Err("they lead in a circle")),
            ("https://a/x", "#top", Err("they lead in a circle")),
            ("https://a/x", "file:///etc/passwd", Err("one leads to a file:// address")),
            ("https://a/x", "data:,x", Err("one leads to a data:// address")),
            ("https://a/x", "https://[bad", Err("one leads nowhere (invalid IPv6 address)")),
        ];
        for (from, location, expected) in table {
            let from = RedirectTarget::origin(Url::parse(from).unwrap());
            let passed = [from.url.clone()];
            let found = follow(&from, location, &passed);
            let found = found.as_ref().map(|target| (target.url.as_str(), target.trusted));
            assert_eq!(found.map_err(String::as_str), expected, "{} -> {location}", from.url);
        }
    }

    #[test]
    fn redirect_chain_that_left_its_origin_stays_untrusted() {
        let away = RedirectTarget { url: Url::parse("https://b/").unwrap(), trusted: false };
        assert!(!follow(&away, "https://a/y", &[]).unwrap().trusted);
        assert!(!follow(&away, "/y", &[]).unwrap().trusted);
    }

    #[test]
    fn ten_redirects_are_followed_and_no_more() {
        let hop = |n: usize| Url::parse(&format!("https://a/{n}")).unwrap();
        let from = RedirectTarget::origin(hop(0));
        let passed: Vec<_> = (0..REDIRECTS_MAX).map(hop).collect();
        assert!(follow(&from, "/next", &passed).is_ok());
        let passed: Vec<_> = (0..=REDIRECTS_MAX).map(hop).collect();
        assert_eq!(follow(&from, "/next", &passed).unwrap_err(), "more than 10 of them");
    }
}
