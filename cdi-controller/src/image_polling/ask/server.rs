//! Which server a poll is of, for the limit of polls of one server.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use api::v1beta1::CdiConfig;

use super::proxy;

/// For a name.
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(10);
/// Addresses of a name that count.
const ADDRESSES_MAX: usize = 16;

/// Whether the host is a name to resolve. With a proxy it is not resolved here: the proxy does that.
pub fn needs_lookup(host: &str, config: Option<&CdiConfig>) -> bool {
    let proxy = proxy(config);
    host.parse::<IpAddr>().is_err() && proxy.http.is_none() && proxy.https.is_none()
}

/// The host and its addresses, which identify a server that has many names. Takes at most `LOOK_UP_TIME_MAX`.
pub async fn look_up(host: &str) -> Vec<String> {
    let found = tokio::time::timeout(LOOK_UP_TIME_MAX, tokio::net::lookup_host((host, 0))).await;
    let addresses = found.ok().and_then(Result::ok).into_iter().flatten();
    let addresses = addresses.take(ADDRESSES_MAX).map(|address| address_key(address.ip()));
    std::iter::once(host.to_owned()).chain(addresses).collect()
}

/// The owner of an IPv6 prefix has as many addresses as it likes, so the prefix counts.
fn address_key(address: IpAddr) -> String {
    const PREFIX: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            format!("{}/64", Ipv6Addr::from_bits(address.to_bits() & PREFIX))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use api::annotations::cron as key;
    use api::v1beta1::DataImportCron;
    use controller_core::data_import_cron::polled_host;

    use super::*;

    fn cron(source: Value, annotations: Value) -> DataImportCron {
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
            "metadata": { "name": "cron", "namespace": "images", "annotations": annotations },
            "spec": {
                "schedule": "", "managedDataSource": "fedora",
                "template": { "spec": { "source": source } },
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_server_is_the_host_of_what_is_asked_first() {
        let registry = |url: &str| json!({ "registry": { "url": url } });
        let http = |url: &str| json!({ "http": { "url": url } });
        let s3 = |url: &str| json!({ "s3": { "url": url } });
        for (source, expected) in [
            (registry("docker://Quay.io/a/b:latest"), "quay.io"),
            (registry("docker://host:5000/a"), "host"),
            (registry("docker://host:5001/a"), "host"),
            (registry("docker://localhost/a"), "localhost"),
            (registry("docker://debian:12"), "docker.io"),
            (registry("docker://library/debian"), "docker.io"),
            (registry("docker://[fd00::1]:5000/a"), "fd00::1"),
            (http("https://user@Host.:8443/a?b@c"), "host"),
            (http("http://192.0.2.1\\@host/a"), "192.0.2.1"),
            (http("https://host#a"), "host"),
            (s3("https://minio:9000/images/a"), "minio"),
            (s3("s3://images/a"), "images"),
            (json!(null), ""),
        ] {
            assert_eq!(polled_host(&cron(source.clone(), json!({}))), expected, "{source}");
        }
        let list = json!({ key::CHECKSUMS_URL: "https://sums.example/SHA256SUMS" });
        assert_eq!(polled_host(&cron(http("https://host/a"), list)), "sums.example");
    }

    #[tokio::test]
    async fn names_of_one_address_are_one_server() {
        let found = look_up("localhost").await;
        assert_eq!(found[0], "localhost");
        assert!(
            found.contains(&"127.0.0.1".into()) || found.contains(&"::/64".into()),
            "{found:?}"
        );
        assert_eq!(look_up("no.such.name.invalid").await, ["no.such.name.invalid"]);
        for (address, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::/64"),
            ("2001:db8::ffff:1", "2001:db8::/64"),
        ] {
            assert_eq!(address_key(address.parse().unwrap()), expected);
        }
    }

    #[test]
    fn only_names_are_looked_up_and_only_where_no_proxy_does_it() {
        let config: CdiConfig = serde_json::from_value(json!({
            "apiVersion": "v", "kind": "k", "metadata": { "name": "config" }, "spec": {},
            "status": { "importProxy": { "HTTPSProxy": "http://proxy:1" } },
        }))
        .unwrap();
        assert!(needs_lookup("host", None) && !needs_lookup("host", Some(&config)));
        assert!(!needs_lookup("192.0.2.1", None) && !needs_lookup("fd00::1", None));
    }
}
