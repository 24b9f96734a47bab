//! When a certificate is made anew: a pure plan from what is kept, what is wanted, and a clock.
//!
//! Authority and leaf never change in the same moment while both are good. Everybody who trusts the authority reads its
//! bundle from a mounted file, which kubelet renews within a minute or two; a leaf of the new authority waits until then,
//! and the old authority stays in the bundle for as long as it is valid.

use std::time::{Duration, SystemTime};

use crate::{Certificate, Life};

/// How long after a new authority is in the bundle everybody has it.
pub const PROPAGATION: Duration = Duration::from_secs(5 * 60);

/// A certificate that is kept, and the life it was made for, as its Secret notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The certificate; `None` for one that cannot be read.
    pub certificate: Option<Certificate>,
    /// What the Secret notes; `None` where it notes nothing, which is as good as the right note.
    pub life: Option<Life>,
}

/// An authority, those who trust it, and whom it vouches for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The authority; `None` where there is no Secret.
    pub authority: Option<Kept>,
    /// The certificates in its bundle.
    pub bundle: Vec<Certificate>,
    /// Whom it vouches for; `None` where there is no Secret.
    pub leaf: Option<Kept>,
}

/// What there should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Of the authority.
    pub authority: Life,
    /// `None` for an authority whose leaves somebody else makes.
    pub leaf: Option<WantedLeaf>,
}

/// What a leaf should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedLeaf {
    /// Its life.
    pub life: Life,
    /// Its hosts; none for a client.
    pub hosts: Vec<String>,
    /// Its common name.
    pub name: String,
}

/// Why a certificate is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none.
    Missing,
    /// It cannot be read.
    Unreadable,
    /// It was made for another life than the one that is configured now.
    Settings,
    /// It is old enough.
    Age,
    /// It is not valid now.
    Expired,
    /// Its authority is gone, or a newer one is known to everybody.
    Authority,
    /// It is for somebody else.
    Name,
}

impl Reason {
    /// In words, for the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "there was none",
            Self::Unreadable => "it could not be read",
            Self::Settings => "its lifetime was changed",
            Self::Age => "it is old enough",
            Self::Expired => "it is not valid now",
            Self::Authority => "its authority was renewed",
            Self::Name => "it was for another name",
        }
    }
}

/// What to make. The bundle follows: see [`bundle`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// A new authority.
    pub authority: Option<Reason>,
    /// A new leaf, of the authority that is there then.
    pub leaf: Option<Reason>,
}

/// What to make now.
pub fn plan(chain: &Chain, wanted: &Wanted, now: SystemTime) -> Plan {
    let authority = due(chain.authority.as_ref(), wanted.authority, now);
    let leaf = wanted.leaf.as_ref().and_then(|leaf| leaf_due(chain, leaf, authority, now));
    Plan { authority, leaf }
}

/// When [`plan`] is to be asked again, if nothing changes before: at least once a minute.
pub const AGAIN_MAX: Duration = Duration::from_secs(60);

fn leaf_due(
    chain: &Chain,
    wanted: &WantedLeaf,
    authority_made: Option<Reason>,
    now: SystemTime,
) -> Option<Reason> {
    if let Some(reason) = due(chain.leaf.as_ref(), wanted.life, now) {
        return Some(reason);
    }
    let leaf = chain.leaf.as_ref()?.certificate.as_ref()?;
    if leaf.hosts != wanted.hosts || leaf.subject != wanted.name {
        return Some(Reason::Name);
    }
    let trusted = |one: &Certificate| one.subject == leaf.issuer && one.is_valid(now);
    if !chain.bundle.iter().any(trusted) {
        return Some(Reason::Authority);
    }
    if authority_made.is_some() {
        return None; // not in the same moment
    }
    let authority = chain.authority.as_ref()?.certificate.as_ref()?;
    let is_known = now.duration_since(authority.not_before).is_ok_and(|age| age >= PROPAGATION);
    (leaf.issuer != authority.subject && is_known).then_some(Reason::Authority)
}

fn due(kept: Option<&Kept>, life: Life, now: SystemTime) -> Option<Reason> {
    let Some(kept) = kept else { return Some(Reason::Missing) };
    let Some(certificate) = &kept.certificate else { return Some(Reason::Unreadable) };
    if !certificate.is_valid(now) {
        return Some(Reason::Expired);
    }
    if kept.life.is_some_and(|noted| noted != life) {
        return Some(Reason::Settings);
    }
    let age = now.duration_since(certificate.not_before).unwrap_or_default();
    let lifetime = certificate.not_after.duration_since(certificate.not_before).unwrap_or_default();
    (age >= life.refresh || age >= lifetime / 5 * 4).then_some(Reason::Age)
}

/// The bundle with `authority` in it, as PEM, the newest first: those before it stay until they end.
pub fn bundle(present: &[Certificate], authority: &Certificate, now: SystemTime) -> String {
    let mut all = vec![authority];
    for one in present {
        if now < one.not_after && !all.contains(&one) {
            all.push(one);
        }
    }
    all.into_iter().map(Certificate::pem).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use rustls::pki_types::CertificateDer;

    use super::*;
    use crate::Lifetimes;

    const HOUR: u64 = 60 * 60;
    /// When the authority of the tests begins.
    const BEGIN: u64 = 1_800_000_000;

    fn at(hours: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(BEGIN + hours * HOUR)
    }

    fn certificate(subject: &str, issuer: &str, begin: u64, end: u64) -> Certificate {
        let hosts =
            if subject == "api" { vec!["api".into(), "api.cdi.svc".into()] } else { vec![] };
        Certificate {
            der: CertificateDer::from(format!("{subject}{begin}").into_bytes()),
            subject: subject.into(),
            issuer: issuer.into(),
            hosts,
            not_before: at(begin),
            not_after: at(end),
        }
    }

    fn wanted() -> Wanted {
        let Lifetimes { authority, server, .. } = Lifetimes::default();
        let hosts = vec!["api".into(), "api.cdi.svc".into()];
        Wanted { authority, leaf: Some(WantedLeaf { life: server, hosts, name: "api".into() }) }
    }

    fn kept(certificate: Certificate, life: Life) -> Option<Kept> {
        Some(Kept { certificate: Some(certificate), life: Some(life) })
    }

    /// All made in the same moment.
    fn fresh() -> Chain {
        let signer = certificate("signer@0", "signer@0", 0, 48);
        let Wanted { authority, leaf } = wanted();
        Chain {
            bundle: vec![signer.clone()],
            authority: kept(signer, authority),
            leaf: kept(certificate("api", "signer@0", 0, 24), leaf.unwrap().life),
        }
    }

    /// The authority was renewed after 24 hours, the leaf after 12.
    fn with_new_authority() -> Chain {
        let mut chain = fresh();
        let next = certificate("signer@24", "signer@24", 24, 72);
        chain.bundle.insert(0, next.clone());
        chain.authority = kept(next, wanted().authority);
        chain.leaf = kept(certificate("api", "signer@0", 12, 36), wanted().leaf.unwrap().life);
        chain
    }

    #[test]
    fn what_is_due_is_made_and_nothing_else() {
        use Reason::{Age, Authority, Expired, Missing, Name, Settings, Unreadable};
        let odd = Life { lifetime: Duration::from_secs(HOUR), refresh: Duration::from_secs(60) };
        let table: [(&str, fn() -> Chain, &dyn Fn(&mut Chain), u64, [Option<Reason>; 2]); 16] = [
            ("nothing there", Chain::default, &|_| (), 0, [Some(Missing), Some(Missing)]),
            ("all fresh", fresh, &|_| (), 0, [None, None]),
            ("before the refresh", fresh, &|_| (), 11, [None, None]),
            ("the leaf's refresh", fresh, &|_| (), 12, [None, Some(Age)]),
            (
                "the authority's refresh",
                with_new_authority,
                &|c| *c = Chain { leaf: c.leaf.clone(), ..fresh() },
                24,
                [Some(Age), Some(Age)],
            ),
            ("all expired", fresh, &|_| (), 48, [Some(Expired), Some(Expired)]),
            (
                "before its time",
                fresh,
                &|c| {
                    c.authority =
                        kept(certificate("signer@0", "signer@0", 5, 48), wanted().authority)
                },
                1,
                [Some(Expired), None],
            ),
            ("no authority", fresh, &|c| c.authority = None, 1, [Some(Missing), None]),
            ("no leaf", fresh, &|c| c.leaf = None, 1, [None, Some(Missing)]),
            (
                "broken authority",
                fresh,
                &|c| c.authority = Some(Kept { certificate: None, life: None }),
                1,
                [Some(Unreadable), None],
            ),
            (
                "another life of the leaf",
                fresh,
                &|c| c.leaf.as_mut().unwrap().life = Some(odd),
                1,
                [None, Some(Settings)],
            ),
            (
                "another life of the authority",
                fresh,
                &|c| c.authority.as_mut().unwrap().life = Some(odd),
                1,
                [Some(Settings), None],
            ),
            ("no note", fresh, &|c| c.leaf.as_mut().unwrap().life = None, 1, [None, None]),
            (
                "another host",
                fresh,
                &|c| c.leaf.as_mut().unwrap().certificate.as_mut().unwrap().hosts.clear(),
                1,
                [None, Some(Name)],
            ),
            ("no bundle", fresh, &|c| c.bundle.clear(), 1, [None, Some(Authority)]),
            (
                "an authority of an hour",
                with_new_authority,
                &|c| {
                    c.leaf =
                        kept(certificate("api", "signer@0", 20, 44), wanted().leaf.unwrap().life)
                },
                25,
                [None, Some(Authority)],
            ),
        ];
        for (case, chain, change, hours, [authority, leaf]) in table {
            let mut chain = chain();
            change(&mut chain);
            assert_eq!(plan(&chain, &wanted(), at(hours)), Plan { authority, leaf }, "{case}");
        }
    }

    #[test]
    fn a_leaf_waits_until_everybody_knows_its_new_authority() {
        let mut chain = with_new_authority();
        chain.leaf = kept(certificate("api", "signer@0", 20, 44), wanted().leaf.unwrap().life);
        for (seconds, expected) in [(0, None), (299, None), (300, Some(Reason::Authority))] {
            let now = at(24) + Duration::from_secs(seconds);
            assert_eq!(plan(&chain, &wanted(), now).leaf, expected, "{seconds} s");
        }
        // But not when the old one is not trusted any more.
        chain.bundle.truncate(1);
        assert_eq!(plan(&chain, &wanted(), at(24)).leaf, Some(Reason::Authority));
    }

    #[test]
    fn four_fifths_of_a_life_are_enough_whatever_is_configured() {
        let mut wanted = wanted();
        wanted.authority = Life { refresh: wanted.authority.lifetime, ..wanted.authority };
        let mut chain = fresh();
        chain.authority.as_mut().unwrap().life = None;
        assert_eq!(plan(&chain, &wanted, at(38)).authority, None);
        assert_eq!(plan(&chain, &wanted, at(39)).authority, Some(Reason::Age));
    }

    #[test]
    fn an_authority_without_leaves_is_all_there_is() {
        let wanted = Wanted { leaf: None, ..wanted() };
        let missing = Plan { authority: Some(Reason::Missing), leaf: None };
        assert_eq!(plan(&Chain::default(), &wanted, at(0)), missing);
    }

    #[test]
    fn a_bundle_keeps_who_is_still_valid() {
        let old = certificate("signer@0", "signer@0", 0, 48);
        let new = certificate("signer@24", "signer@24", 24, 72);
        let both = format!("{}{}", new.pem(), old.pem());
        assert_eq!(bundle(std::slice::from_ref(&old), &new, at(24)), both);
        assert_eq!(bundle(&[new.clone(), old.clone()], &new, at(25)), both);
        assert_eq!(bundle(&[new.clone(), old], &new, at(48)), new.pem());
        assert_eq!(bundle(&[], &new, at(24)), new.pem());
    }
}
