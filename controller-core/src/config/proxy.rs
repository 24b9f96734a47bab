//! Credentials in the URLs of import proxies. Every user of the cluster may read the CDIConfig, so the controller
//! writes the URLs there without user and password, and takes these from where the administrator has set them when a
//! worker needs them.

use std::sync::Arc;

use api::v1beta1::{Cdi, CdiConfig, CdiConfigSpec, ImportProxy};

use super::claims_authority;
use crate::event::Event;
use crate::openshift::ProxyStatus;

/// The same proxies without credentials.
pub fn without_credentials(proxy: &ImportProxy) -> ImportProxy {
    let shown = |url: &Option<String>| url.as_deref().map(without_userinfo);
    ImportProxy {
        http_proxy: shown(&proxy.http_proxy),
        https_proxy: shown(&proxy.https_proxy),
        ..proxy.clone()
    }
}

/// `http://user:password@proxy:3128` → `http://proxy:3128`. A proxy may be named without a scheme, too.
fn without_userinfo(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = url.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

/// The settings as a worker or a poll needs them: `config`, whose status has the effective proxies, with their
/// credentials as the administrator or the platform has set them.
pub fn with_credentials(
    config: Arc<CdiConfig>,
    installation: Option<&Cdi>,
    platform: Option<&ProxyStatus>,
) -> Arc<CdiConfig> {
    let claiming = installation.filter(|cdi| claims_authority(cdi));
    let set = claiming.and_then(|cdi| cdi.spec.config.as_ref()).unwrap_or(&config.spec);
    let (http, https) = match (&set.import_proxy, platform) {
        (Some(proxy), _) => (proxy.http_proxy.clone(), proxy.https_proxy.clone()),
        (None, Some(proxy)) => (proxy.http_proxy.clone(), proxy.https_proxy.clone()),
        (None, None) => return config,
    };
    let shown = config.status.as_ref().and_then(|status| status.import_proxy.as_ref());
    let Some(shown) = shown else { return config };
    // The configured URL may be newer than the effective one.
    let whole = |shown: &Option<String>, set: Option<String>| {
        let is_same = |set: &String| shown.as_deref() == Some(&*without_userinfo(set));
        set.filter(is_same).or_else(|| shown.clone())
    };
    let http_proxy = whole(&shown.http_proxy, http);
    let https_proxy = whole(&shown.https_proxy, https);
    if (&http_proxy, &https_proxy) == (&shown.http_proxy, &shown.https_proxy) {
        return config;
    }
    let proxy = ImportProxy { http_proxy, https_proxy, ..shown.clone() };
    let mut config = Arc::unwrap_or_clone(config);
    if let Some(status) = &mut config.status {
        status.import_proxy = Some(proxy);
    }
    Arc::new(config)
}

/// A warning where the administrator has written credentials to the CDIConfig itself. They are the only copy, so they
/// stay.
pub fn visible_credentials(spec: &CdiConfigSpec) -> Option<Event> {
    let proxy = spec.import_proxy.as_ref()?;
    (without_credentials(proxy) != *proxy).then(|| {
        let message = "spec.importProxy has a password, and every user may read the CDIConfig: set it as spec.config.importProxy of \
                       the CDI object, with the annotation cdi.kubevirt.io/configAuthority";
        Event::warning(api::events::PROXY_CREDENTIALS_VISIBLE, message.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn user_and_password_are_left_out_of_any_url() {
        for (url, expected) in [
            ("", ""),
            ("http://proxy:3128", "http://proxy:3128"),
            ("http://user:secret@proxy:3128", "http://proxy:3128"),
            ("https://user@[::1]:1/path", "https://[::1]:1/path"),
            ("http://user:p@ss@proxy", "http://proxy"),
            ("user:secret@proxy:3128", "proxy:3128"),
            ("http://proxy/a@b", "http://proxy/a@b"),
            ("http://proxy?user@x", "http://proxy?user@x"),
            ("http://user:secret@", "http://"),
        ] {
            assert_eq!(without_userinfo(url), expected, "{url}");
        }
    }

    fn config(spec: &str, status: &str) -> Arc<CdiConfig> {
        let proxy = |url: &str| json!({ "HTTPProxy": url, "HTTPSProxy": "", "noProxy": ".svc" });
        let spec = if spec.is_empty() { json!({}) } else { json!({ "importProxy": proxy(spec) }) };
        let config = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig", "metadata": { "name": "config" },
            "spec": spec, "status": { "importProxy": proxy(status) },
        });
        Arc::new(serde_json::from_value(config).unwrap())
    }

    fn installation(url: &str, annotations: Value) -> Cdi {
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
            "metadata": { "name": "cdi", "annotations": annotations },
            "spec": { "config": { "importProxy": { "HTTPProxy": url } } },
        }))
        .unwrap()
    }

    #[test]
    fn credentials_are_read_from_the_object_that_configures_them() {
        const WHOLE: &str = "http://user:secret@proxy";
        const SHOWN: &str = "http://proxy";
        let claims = || json!({ "cdi.kubevirt.io/configAuthority": "" });
        let platform = ProxyStatus { http_proxy: Some(WHOLE.into()), ..ProxyStatus::default() };
        let table = [
            ("nothing is set", config("", SHOWN), None, None, SHOWN),
            ("the CDIConfig", config(WHOLE, SHOWN), None, None, WHOLE),
            (
                "the CDI object",
                config(SHOWN, SHOWN),
                Some(installation(WHOLE, claims())),
                None,
                WHOLE,
            ),
            (
                "it claims nothing",
                config("", SHOWN),
                Some(installation(WHOLE, json!({}))),
                None,
                SHOWN,
            ),
            ("the platform", config("", SHOWN), None, Some(&platform), WHOLE),
            ("others are set", config(SHOWN, SHOWN), None, Some(&platform), SHOWN),
            ("others are in force yet", config(WHOLE, "http://old"), None, None, "http://old"),
        ];
        for (case, config, installation, platform, expected) in table {
            let found = with_credentials(config, installation.as_ref(), platform);
            let proxy = found.status.as_ref().unwrap().import_proxy.clone().unwrap();
            assert_eq!(proxy.http_proxy.as_deref(), Some(expected), "{case}");
            assert_eq!(proxy.no_proxy.as_deref(), Some(".svc"), "{case}");
        }
    }

    #[test]
    fn password_in_the_cdi_config_is_reported() {
        assert!(visible_credentials(&config("http://u:p@proxy", "").spec).is_some());
        assert!(visible_credentials(&config("http://proxy", "").spec).is_none());
        assert!(visible_credentials(&config("", "").spec).is_none());
    }
}
