//! When certificates are renewed: a pure plan from the stored ones, the desired ones and the time.
//!
//! CA and leaf are never replaced at the same time while both are valid. Clients that trust the CA read its bundle from a
//! mounted file, which the kubelet updates within a minute or two; a leaf of the new CA is created only after that, and
//! the old CA stays in the bundle as long as it is valid.

use std::time::{Duration, SystemTime};

use crate::{Certificate, CertificateLifetime};

/// How long the kubelets may take to distribute a changed bundle.
pub const PROPAGATION: Duration = Duration::from_secs(5 * 60);

/// A certificate in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// `None`: it cannot be read.
    pub certificate: Option<Certificate>,
    /// The lifetime that it was created for, by the Secret's annotation. `None` counts as the desired one.
    pub life: Option<CertificateLifetime>,
}

/// A CA, the bundle that its clients trust, and the leaf that it signs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateChain {
    /// `None`: no Secret.
    pub ca: Option<StoredCertificate>,
    pub bundle: Vec<Certificate>,
    /// `None`: no Secret.
    pub leaf: Option<StoredCertificate>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredChain {
    pub ca: CertificateLifetime,
    /// `None`: the controller creates the leaves of this CA.
    pub leaf: Option<DesiredLeaf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredLeaf {
    pub life: CertificateLifetime,
    /// Empty for a client.
    pub hosts: Vec<String>,
    /// Common name.
    pub name: String,
}

/// Why a certificate is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalReason {
    Missing,
    Unreadable,
    /// The configured lifetime has changed.
    Settings,
    /// The refresh age, or four fifths of its validity.
    Age,
    Expired,
    /// Its CA is not trusted any more, or a newer CA is in everyone's bundle.
    CaRenewed,
    /// Hosts or common name differ from the desired ones.
    Name,
}

impl RenewalReason {
    /// For the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "there is none",
            Self::Unreadable => "it cannot be read",
            Self::Settings => "its configured lifetime has changed",
            Self::Age => "it is due for renewal",
            Self::Expired => "it is not valid now",
            Self::CaRenewed => "its CA was renewed",
            Self::Name => "it is for another name",
        }
    }
}

/// The certificates to create, and why. The bundle follows: see [`renewed_bundle`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotationPlan {
    pub ca: Option<RenewalReason>,
    /// Signed by the CA that is in place then.
    pub leaf: Option<RenewalReason>,
}

pub fn plan_rotation(
    chain: &CertificateChain,
    desired: &DesiredChain,
    now: SystemTime,
) -> RotationPlan {
    let ca = renewal_reason(chain.ca.as_ref(), desired.ca, now);
    let leaf = desired.leaf.as_ref().and_then(|leaf| leaf_renewal_reason(chain, leaf, ca, now));
    RotationPlan { ca, leaf }
}

/// Interval of [`plan_rotation`].
pub const RECHECK_MAX: Duration = Duration::from_secs(60);

fn leaf_renewal_reason(
    chain: &CertificateChain,
    desired: &DesiredLeaf,
    ca_reason: Option<RenewalReason>,
    now: SystemTime,
) -> Option<RenewalReason> {
    if let Some(reason) = renewal_reason(chain.leaf.as_ref(), desired.life, now) {
        return Some(reason);
    }
    let leaf = chain.leaf.as_ref()?.certificate.as_ref()?;
    if leaf.hosts != desired.hosts || leaf.subject != desired.name {
        return Some(RenewalReason::Name);
    }
    let trusted = |one: &Certificate| one.subject == leaf.issuer && one.is_valid(now);
    if !chain.bundle.iter().any(trusted) {
        return Some(RenewalReason::CaRenewed);
    }
    if ca_reason.is_some() {
        return None; // not in the same pass
    }
    let ca = chain.ca.as_ref()?.certificate.as_ref()?;
    let is_known = now.duration_since(ca.not_before).is_ok_and(|age| age >= PROPAGATION);
    (leaf.issuer != ca.subject && is_known).then_some(RenewalReason::CaRenewed)
}

fn renewal_reason(
    stored: Option<&StoredCertificate>,
    life: CertificateLifetime,
    now: SystemTime,
) -> Option<RenewalReason> {
    let Some(stored) = stored else { return Some(RenewalReason::Missing) };
    let Some(certificate) = &stored.certificate else { return Some(RenewalReason::Unreadable) };
    if !certificate.is_valid(now) {
        return Some(RenewalReason::Expired);
    }
    if stored.life.is_some_and(|noted| noted != life) {
        return Some(RenewalReason::Settings);
    }
    let age = now.duration_since(certificate.not_before).unwrap_or_default();
    let lifetime = certificate.not_after.duration_since(certificate.not_before).unwrap_or_default();
    (age >= life.refresh || age >= lifetime / 5 * 4).then_some(RenewalReason::Age)
}

/// The PEM bundle with `ca` first. Certificates of the present bundle stay until they expire.
pub fn renewed_bundle(present: &[Certificate], ca: &Certificate, now: SystemTime) -> String {
    let mut all = vec![ca];
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
    use crate::CertificateLifetimes;

    const HOUR: u64 = 60 * 60;
    /// When the CA of the tests becomes valid.
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

    fn desired() -> DesiredChain {
        let CertificateLifetimes { ca, server, .. } = CertificateLifetimes::default();
        let hosts = vec!["api".into(), "api.cdi.svc".into()];
        DesiredChain { ca, leaf: Some(DesiredLeaf { life: server, hosts, name: "api".into() }) }
    }

    fn stored(certificate: Certificate, life: CertificateLifetime) -> StoredCertificate {
        StoredCertificate { certificate: Some(certificate), life: Some(life) }
    }

    /// All created at the same time.
    fn fresh() -> CertificateChain {
        let signer = certificate("signer@0", "signer@0", 0, 48);
        let DesiredChain { ca, leaf } = desired();
        CertificateChain {
            bundle: vec![signer.clone()],
            ca: Some(stored(signer, ca)),
            leaf: Some(stored(certificate("api", "signer@0", 0, 24), leaf.unwrap().life)),
        }
    }

    /// The CA was renewed after 24 hours, the leaf after 12.
    fn with_new_authority() -> CertificateChain {
        let mut chain = fresh();
        let next = certificate("signer@24", "signer@24", 24, 72);
        chain.bundle.insert(0, next.clone());
        chain.ca = Some(stored(next, desired().ca));
        chain.leaf =
            Some(stored(certificate("api", "signer@0", 12, 36), desired().leaf.unwrap().life));
        chain
    }

    #[test]
    fn rotation_decision_table() {
        use RenewalReason::{Age, CaRenewed, Expired, Missing, Name, Settings, Unreadable};
        let odd = CertificateLifetime {
            lifetime: Duration::from_secs(HOUR),
            refresh: Duration::from_secs(60),
        };
        let table: [(
            &str,
            fn() -> CertificateChain,
            &dyn Fn(&mut CertificateChain),
            u64,
            [Option<RenewalReason>; 2],
        ); 16] = [
            (
                "nothing there",
                CertificateChain::default,
                &|_| (),
                0,
                [Some(Missing), Some(Missing)],
            ),
            ("all fresh", fresh, &|_| (), 0, [None, None]),
            ("before the refresh", fresh, &|_| (), 11, [None, None]),
            ("the leaf's refresh", fresh, &|_| (), 12, [None, Some(Age)]),
            (
                "refresh age of the CA",
                with_new_authority,
                &|c| *c = CertificateChain { leaf: c.leaf.clone(), ..fresh() },
                24,
                [Some(Age), Some(Age)],
            ),
            ("all expired", fresh, &|_| (), 48, [Some(Expired), Some(Expired)]),
            (
                "before its time",
                fresh,
                &|c| c.ca = Some(stored(certificate("signer@0", "signer@0", 5, 48), desired().ca)),
                1,
                [Some(Expired), None],
            ),
            ("no CA", fresh, &|c| c.ca = None, 1, [Some(Missing), None]),
            ("no leaf", fresh, &|c| c.leaf = None, 1, [None, Some(Missing)]),
            (
                "broken CA",
                fresh,
                &|c| c.ca = Some(StoredCertificate { certificate: None, life: None }),
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
                "another lifetime of the CA",
                fresh,
                &|c| c.ca.as_mut().unwrap().life = Some(odd),
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
            ("no bundle", fresh, &|c| c.bundle.clear(), 1, [None, Some(CaRenewed)]),
            (
                "CA one hour old",
                with_new_authority,
                &|c| {
                    c.leaf = Some(stored(
                        certificate("api", "signer@0", 20, 44),
                        desired().leaf.unwrap().life,
                    ))
                },
                25,
                [None, Some(CaRenewed)],
            ),
        ];
        for (case, chain, change, hours, [ca, leaf]) in table {
            let mut chain = chain();
            change(&mut chain);
            assert_eq!(
                plan_rotation(&chain, &desired(), at(hours)),
                RotationPlan { ca, leaf },
                "{case}"
            );
        }
    }

    #[test]
    fn leaf_of_a_new_ca_waits_for_the_bundles_propagation() {
        let mut chain = with_new_authority();
        chain.leaf =
            Some(stored(certificate("api", "signer@0", 20, 44), desired().leaf.unwrap().life));
        for (seconds, expected) in [(0, None), (299, None), (300, Some(RenewalReason::CaRenewed))] {
            let now = at(24) + Duration::from_secs(seconds);
            assert_eq!(plan_rotation(&chain, &desired(), now).leaf, expected, "{seconds} s");
        }
        // But not when the old one is not trusted any more.
        chain.bundle.truncate(1);
        assert_eq!(plan_rotation(&chain, &desired(), at(24)).leaf, Some(RenewalReason::CaRenewed));
    }

    #[test]
    fn certificate_is_renewed_after_four_fifths_of_its_validity() {
        let mut desired = desired();
        desired.ca = CertificateLifetime { refresh: desired.ca.lifetime, ..desired.ca };
        let mut chain = fresh();
        chain.ca.as_mut().unwrap().life = None;
        assert_eq!(plan_rotation(&chain, &desired, at(38)).ca, None);
        assert_eq!(plan_rotation(&chain, &desired, at(39)).ca, Some(RenewalReason::Age));
    }

    #[test]
    fn ca_without_leaf_plans_only_the_ca() {
        let desired = DesiredChain { leaf: None, ..desired() };
        let missing = RotationPlan { ca: Some(RenewalReason::Missing), leaf: None };
        assert_eq!(plan_rotation(&CertificateChain::default(), &desired, at(0)), missing);
    }

    #[test]
    fn bundle_keeps_cas_until_they_expire() {
        let old = certificate("signer@0", "signer@0", 0, 48);
        let new = certificate("signer@24", "signer@24", 24, 72);
        let both = format!("{}{}", new.pem(), old.pem());
        assert_eq!(renewed_bundle(std::slice::from_ref(&old), &new, at(24)), both);
        assert_eq!(renewed_bundle(&[new.clone(), old.clone()], &new, at(25)), both);
        assert_eq!(renewed_bundle(&[new.clone(), old], &new, at(48)), new.pem());
        assert_eq!(renewed_bundle(&[], &new, at(24)), new.pem());
    }
}
