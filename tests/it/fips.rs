//! Sources on a system in FIPS mode, where TLS 1.2 needs the Extended Master Secret extension.

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use testkit::{MIB, Running, ServerCertificate, in_own_network, pattern, require_tool};
use tests::{LIMIT, Pod};

const PORT: u16 = 8443;

/// A web server with TLS 1.2 and these options of OpenSSL, which serves `folder`. `None`: there is no nginx.
fn nginx(folder: &Path, certificate: &ServerCertificate, options: &str) -> Option<Running> {
    let at = |name: &str| folder.join(name).display().to_string();
    std::fs::write(folder.join("tls.crt"), &certificate.certificate).unwrap();
    std::fs::write(folder.join("tls.key"), &certificate.key).unwrap();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {};\n", at(kind)));
    let settings = format!(
        "daemon off; master_process off; user root; pid {pid};
events {{ worker_connections 64; }}
http {{
    access_log off;
    {temporary}
    server {{
        listen 127.0.0.1:{PORT} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2;
        ssl_conf_command Options {options};
        root {root};
    }}
}}
",
        pid = at("nginx.pid"),
        temporary = temporary.concat(),
        certificate = at("tls.crt"),
        key = at("tls.key"),
        root = folder.display(),
    );
    std::fs::write(folder.join("nginx.conf"), settings).unwrap();
    let mut command = require_tool("nginx")?.command(["-e", "stderr", "-c", &at("nginx.conf")]);
    let server = Running::start(command.stdin(Stdio::null()));
    let deadline = Instant::now() + LIMIT;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).is_err() {
        assert!(Instant::now() < deadline, "nginx does not respond");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(server)
}

#[test]
fn source_without_the_extended_master_secret_is_refused_in_fips_mode() {
    in_own_network(|| {
        let disk = pattern(2 * MIB);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("disk.img"), &disk).unwrap();
        let certificate = ServerCertificate::new();
        let pod = || {
            Pod::new()
                .from_url(&format!("https://127.0.0.1:{PORT}/disk.img"))
                .variable("IMPORTER_CERT_DIR", "/certs")
                .file("certs/ca.crt", &certificate.ca)
        };
        for (options, is_offered) in
            [("ExtendedMasterSecret", true), ("-ExtendedMasterSecret", false)]
        {
            let Some(_server) = nginx(folder.path(), &certificate, options) else { return };
            pod().run().expect_success();
            let strict = pod().in_fips_mode();
            if is_offered {
                strict.run().expect_success();
            } else {
                strict.run().expect_refusal();
                let message = strict.termination_message();
                assert!(
                    message.contains("without the Extended Master Secret extension"),
                    "{message}"
                );
            }
        }
    });
}
