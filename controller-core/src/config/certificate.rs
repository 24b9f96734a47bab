//! Which certificates a client of the upload proxy has to trust.

use std::cmp::Reverse;

use jiff::Timestamp;

/// The fields of a certificate that decide whether clients can trust it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub pem: String,
    pub subject: String,
    pub issuer: String,
    /// Hosts it is valid for; the `*` of `*.domain` matches one label.
    pub names: Vec<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Certificate {
    fn is_valid(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    fn is_for(&self, host: &str) -> bool {
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(domain) => host.split_once('.').is_some_and(|(label, rest)| {
                !label.is_empty() && rest.eq_ignore_ascii_case(domain)
            }),
            None => name.eq_ignore_ascii_case(host),
        })
    }
}

/// The certificate of this host that expires last, and its issuers; where none is of the host, all that are valid.
/// `None`: none is valid.
pub fn trusted(certificates: &[Certificate], host: &str, now: Timestamp) -> Option<String> {
    let valid: Vec<_> = certificates.iter().filter(|one| one.is_valid(now)).collect();
    let of_host = valid.iter().copied().filter(|one| one.is_for(host));
    let chosen = match of_host.min_by_key(|one| Reverse(one.not_after)) {
        Some(leaf) => chain(leaf, &valid),
        None => valid,
    };
    if chosen.is_empty() {
        return None;
    }
    Some(chosen.iter().map(|one| format!("{}\n", one.pem.trim_end())).collect())
}

/// The certificate and its issuers, up to one that is self-signed, missing or a repetition.
fn chain<'a>(leaf: &'a Certificate, valid: &[&'a Certificate]) -> Vec<&'a Certificate> {
    let mut chain = vec![leaf];
    let mut last = leaf;
    while last.issuer != last.subject {
        let issuer = valid.iter().find(|one| one.subject == last.issuer && !chain.contains(one));
        let Some(issuer) = issuer else { break };
        last = issuer;
        chain.push(issuer);
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn certificate(subject: &str, issuer: &str, names: &[&str], life: (i64, i64)) -> Certificate {
        Certificate {
            pem: subject.to_uppercase(),
            subject: subject.into(),
            issuer: issuer.into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            not_before: at(life.0),
            not_after: at(life.1),
        }
    }

    #[test]
    fn certificate_of_the_host_that_expires_last_is_trusted_with_its_issuers() {
        let host = "up.example.test";
        let all = [
            certificate("short", "ca", &[host], (0, 50)),
            certificate("long", "middle", &["*.example.test"], (0, 90)),
            certificate("old", "ca", &[host], (0, 5)),
            certificate("middle", "root", &[], (0, 99)),
            certificate("root", "root", &[], (0, 99)),
        ];
        let text = |now, host| trusted(&all, host, at(now));
        assert_eq!(text(10, host).as_deref(), Some("LONG\nMIDDLE\nROOT\n"));
        assert_eq!(text(10, "UP.example.test").as_deref(), Some("LONG\nMIDDLE\nROOT\n"));
        let every = "SHORT\nLONG\nMIDDLE\nROOT\n";
        assert_eq!(text(10, "elsewhere.test").as_deref(), Some(every));
        assert_eq!(text(10, "a.b.example.test").as_deref(), Some(every));
        assert_eq!(text(100, host), None);
    }

    #[test]
    fn cas_that_sign_each_other_end_the_chain() {
        let all = [certificate("a", "b", &["host"], (0, 9)), certificate("b", "a", &[], (0, 9))];
        assert_eq!(trusted(&all, "host", at(1)).as_deref(), Some("A\nB\n"));
        assert_eq!(trusted(&[], "host", at(1)), None);
    }
}
