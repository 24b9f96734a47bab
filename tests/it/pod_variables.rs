//! Every variable that controllers set on importer containers, with valid and odd values, and its
//! effect. Variables of single sources are tested with their sources.

use testkit::{Fault, FaultServer, Finished, MIB, Proxy, in_own_network, pattern};
use tests::Pod;
use tests::container::digest;

/// The pod of a table's row, after it has run.
struct Ran {
    pod: Pod,
    finished: Finished,
}

impl Ran {
    /// Complete, with a disk of so many bytes.
    fn made(&self, len: u64) -> bool {
        let disk = std::fs::metadata(self.pod.path("data/disk.img"));
        self.finished.success()
            && self.pod.termination_message().contains("Import Complete")
            && disk.is_ok_and(|facts| facts.len() == len)
    }

    /// Failed, with these words.
    fn message(&self, words: &str) -> bool {
        self.finished.status.code() == Some(1) && self.pod.termination_message().contains(words)
    }
}

fn pod(url: &str) -> Pod {
    let pod = Pod::new().from_url(url).variable("IMPORTER_IMAGE_SIZE", "8Mi");
    pod.variable("FILESYSTEM_OVERHEAD", "0")
}

fn ran(pod: Pod) -> Ran {
    let finished = pod.run();
    Ran { pod, finished }
}

#[test]
fn each_variable_has_its_documented_effect() {
    in_own_network(|| {
        let disk = pattern(2 * MIB);
        let server = FaultServer::in_memory(&disk);
        let sum = digest(&disk);
        type Check = fn(&Ran) -> bool;
        let shouted = format!(" {} ", sum.to_uppercase());
        let table: &[(&str, &str, Check)] = &[
            ("IMPORTER_IMAGE_SIZE", "8Mi", |ran| ran.made(8 * MIB)),
            ("IMPORTER_IMAGE_SIZE", "5M", |ran| ran.made(4 * MIB)), // of whole MiB
            ("IMPORTER_IMAGE_SIZE", "6291456", |ran| ran.made(6 * MIB)),
            ("IMPORTER_IMAGE_SIZE", "", |ran| ran.made(2 * MIB)),
            ("IMPORTER_IMAGE_SIZE", "8 Mi", |ran| ran.message("Unable to process data: ")),
            ("FILESYSTEM_OVERHEAD", "0.5", |ran| ran.made(5 * MIB)),
            ("FILESYSTEM_OVERHEAD", "much", |ran| ran.made(8 * MIB)),
            ("IMPORTER_CONTENTTYPE", "", |ran| ran.made(8 * MIB)),
            ("INSECURE_TLS", "perhaps", |ran| ran.made(8 * MIB)),
            ("IMPORTER_CHECKSUM", &sum, |ran| ran.made(8 * MIB)),
            ("IMPORTER_CHECKSUM", &shouted, |ran| ran.made(8 * MIB)),
            ("IMPORTER_CHECKSUM", "crc32:00", |ran| {
                ran.message("unsupported hash algorithm 'crc32'")
            }),
            ("CACHE_MODE", "TRYNONE", |ran| ran.made(8 * MIB)),
            ("CACHE_MODE", "ANYTHING", |ran| ran.made(8 * MIB)),
            ("IMPORTER_DISK_ID", "of another source", |ran| ran.made(8 * MIB)),
            ("IMPORTER_UUID", "of another source", |ran| ran.made(8 * MIB)),
            ("IMPORTER_BACKING_FILE", "of another source", |ran| ran.made(8 * MIB)),
            ("IMPORTER_THUMBPRINT", "of another source", |ran| ran.made(8 * MIB)),
            ("IMPORTER_REGISTRY_IMAGE_ARCHITECTURE", "s390x", |ran| ran.made(8 * MIB)),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/absent", |ran| ran.made(8 * MIB)),
            ("IMPORTER_PROXY_CERT_DIR", "/absent", |ran| ran.made(8 * MIB)),
            ("IMPORTER_PULL_METHOD", "by hand", |ran| ran.made(8 * MIB)),
            ("PREALLOCATION", "F", |ran| {
                ran.made(8 * MIB)
                    && ran.pod.termination_message().contains("\"preallocationApplied\":false")
            }),
            ("PREALLOCATION", "1", |ran| {
                ran.made(8 * MIB)
                    && ran.pod.termination_message().contains("\"preallocationApplied\":true")
            }),
            ("PREALLOCATION", "yes", |ran| {
                ran.finished.status.code() == Some(1) && ran.pod.termination_message().is_empty()
            }),
        ];
        for (name, value, check) in table {
            let ran = ran(pod(&server.url()).variable(name, value));
            let message = (ran.pod.termination_message(), &ran.finished.stderr);
            assert!(check(&ran), "{name}={value:?}: {message:?}");
        }
    });
}

#[test]
fn variables_select_the_trusted_cas() {
    in_own_network(|| {
        let server = FaultServer::in_memory(&pattern(2 * MIB)).tls();
        let tls = || pod(&server.url());
        let untrusted = "HTTP request errored";
        for (pod, trusted) in [
            (tls(), false),
            (tls().variable("INSECURE_TLS", "T"), true),
            (tls().variable("INSECURE_TLS", "yes"), false),
            (tls().variable("IMPORTER_CERT_DIR", "/certs").file("certs/x", server.ca_pem()), true),
            // Only where the variable names the directory.
            (tls().file("certs/x", server.ca_pem()), false),
            // But the proxy's CAs are found by their place.
            (tls().file("proxycerts/ca.crt", server.ca_pem()), true),
        ] {
            let ran = ran(pod);
            let as_expected = if trusted { ran.made(8 * MIB) } else { ran.message(untrusted) };
            assert!(as_expected, "{:?}: {}", ran.pod, ran.finished.stderr);
        }
    });
}

#[test]
fn proxy_is_used_except_for_excluded_hosts() {
    in_own_network(|| {
        let (server, proxy) = (FaultServer::in_memory(&pattern(2 * MIB)), Proxy::start());
        let away = server.url_via("image.test", "/disk.img");
        let through = || pod(&away).variable("http_proxy", &proxy.url());
        assert!(ran(through()).made(8 * MIB));
        assert!(proxy.requests().iter().any(|request| request.target.contains("image.test")));
        let before = proxy.requests().len();
        for exception in [".test", "image.test", "*"] {
            let ran = ran(through().variable("no_proxy", exception));
            assert!(ran.message("Unable to connect to http data source: "), "{exception}");
        }
        assert_eq!(proxy.requests().len(), before);
    });
}

#[test]
fn numbered_headers_are_sent_and_incomplete_credentials_ignored() {
    in_own_network(|| {
        let server = FaultServer::in_memory(&pattern(2 * MIB))
            .always(Fault::RequireHeader("x-second".into(), "2".into()))
            .always(Fault::RequireHeader("x-tenth".into(), "a: b".into()));
        let pod = pod(&server.url())
            .variable("IMPORTER_EXTRA_HEADER_2", "X-Second:   2")
            .variable("IMPORTER_EXTRA_HEADER_10", "X-Tenth: a: b")
            .variable("IMPORTER_EXTRA_HEADER_3", "no header")
            .variable("IMPORTER_EXTRA_HEADER_4", "User-Agent: mine")
            .variable("IMPORTER_ACCESS_KEY_ID", "alone");
        let ran = ran(pod);
        assert!(ran.made(8 * MIB), "{}", ran.finished.stderr);
        for request in server.requests() {
            assert_eq!(request.header("user-agent"), Some("mine"));
            assert_eq!(request.header("authorization"), None);
        }
    });
}
