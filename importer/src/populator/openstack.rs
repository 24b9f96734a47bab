//! An image of OpenStack: Keystone authenticates and has the address of Glance, which has the images.

use std::collections::BTreeMap;

use contract::go_bool;
use runtime::Flags;

use super::spec::required;
use super::{Opened, glance, keystone};
use crate::error::Error;
use crate::web::call::Caller;
use crate::web::tls::Trust;
use crate::web::{HttpOptions, ProxySettings};

/// Opens the image that the flags name. `variables` are those of the Secret.
pub(super) fn open(flags: &Flags, variables: &BTreeMap<String, String>) -> Result<Opened, Error> {
    let text = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
    let insecure_tls = go_bool(text("insecureSkipVerify")).unwrap_or(false);
    let authority = Some(text("cacert")).filter(|pem| !pem.is_empty() && !insecure_tls);
    let http = HttpOptions {
        ca_pem: authority.map(str::to_owned).into_iter().collect(),
        insecure_tls,
        proxy: ProxySettings::from_variables(|name| variables.get(name).cloned()),
        ..HttpOptions::default()
    };
    let trust = Trust::new(&http).map_err(|_| Error::Option {
        what: "CA certificate is malformed, failed to configure the CA cert pool".into(),
    })?;
    let caller = Caller::trusting(trust, &http)?;
    let session = keystone::login(&caller, required(flags, "endpoint")?, variables)?;
    glance::open(&caller, &session, required(flags, "image-id")?, http)
}
