//! A disk of oVirt. Upstream CDI starts `ovirt-img` for it; here it is the source that importers' pods have.

use std::collections::BTreeMap;

use contract::go_bool;
use runtime::Flags;

use super::Opened;
use super::spec::required;
use crate::error::Error;
use crate::imageio::{ImageioSettings, Intervals, imageio};
use crate::secret::Secret;
use crate::stage::{Checkpoints, StopFlag};
use crate::web::{HttpOptions, ProxySettings};

const INSECURE: &str = "insecureSkipVerify";

/// Begins the transfer of the disk that the flags name. `variables` are those of the Secret.
pub(super) fn open(
    flags: &Flags,
    variables: &BTreeMap<String, String>,
    stop: &StopFlag,
) -> Result<Opened, Error> {
    let text = |name: &str| variables.get(name).cloned().unwrap_or_default();
    let insecure_tls = match text(INSECURE).as_str() {
        "" => false,
        given => go_bool(given).ok_or_else(|| Error::Option {
            what: format!("{INSECURE} has to be true or false, not {given:?}"),
        })?,
    };
    let authority = text("cacert");
    let stage = imageio(&ImageioSettings {
        endpoint: required(flags, "engine-url")?.to_owned(),
        username: text("user"),
        password: Secret::new(text("password")),
        disk_id: required(flags, "disk-id")?.to_owned(),
        checkpoints: Checkpoints::default(),
        http: HttpOptions {
            ca_pem: Some(authority)
                .filter(|pem| !pem.is_empty() && !insecure_tls)
                .into_iter()
                .collect(),
            insecure_tls,
            proxy: ProxySettings::from_variables(|name| variables.get(name).cloned()),
            ..HttpOptions::default()
        },
        stop: stop.clone(),
        intervals: Intervals::default(),
    })?;
    Ok(Opened { source: stage.source, checksum: None })
}

#[cfg(test)]
mod tests {
    use testkit::imageio::DISK;
    use testkit::{Ovirt, OvirtState};

    use super::*;
    use crate::populator::spec::FLAGS;

    #[test]
    fn a_disk_is_opened_with_the_keys_of_the_secret() {
        let ovirt = Ovirt::start(OvirtState { bytes: vec![7; 4096], ..OvirtState::default() });
        let open = |pairs: &[(&str, &str)]| {
            let flags = [format!("--engine-url={}", ovirt.endpoint()), format!("--disk-id={DISK}")];
            let variables = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let flags = Flags::parse(flags, FLAGS);
            open(&flags, &variables.collect(), &StopFlag::default())
        };
        let user = ("user", "admin@internal");
        let opened = open(&[user, ("password", "hush"), (INSECURE, "true")]).unwrap();
        assert!(opened.source.is_disk());
        drop(opened);
        assert_eq!(ovirt.state().actions.last().unwrap(), "finalize");
        for (pairs, phrase) in [
            (vec![user, ("password", "other")], "Cannot authenticate"),
            (vec![user, (INSECURE, "perhaps")], "has to be true or false"),
            (vec![user, ("cacert", "no certificate")], "the given text"),
        ] {
            let message = open(&pairs).err().expect("refused").to_string();
            assert!(message.contains(phrase) && !message.contains("hush"), "{message}");
        }
    }
}
