//! The certificates of an installation: which CA signs which, and the Secrets and ConfigMaps that store them.

use auth::CertificateLifetimes;
use auth::rotation::{DesiredChain, DesiredLeaf};

/// A CA, its bundle, and the certificate that it signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainSpec {
    /// The CA's Secret. Its name is part of the CA's common name.
    pub signer: &'static str,
    /// The ConfigMap of the bundle of valid CA certificates.
    pub bundle: &'static str,
    /// `None`: the controller creates one for each upload server.
    pub leaf: Option<LeafSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafSpec {
    pub secret: &'static str,
    /// Host names; empty for a client.
    pub hosts: Vec<String>,
    /// Common name.
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallationChains(pub [ChainSpec; 4]);

/// The CAs that the cluster's API server trusts for webhooks and the aggregated API.
pub const API_BUNDLE: &str = "cdi-apiserver-signer-bundle";
/// The CAs that the upload proxy trusts for upload servers.
pub const UPLOAD_SERVER_BUNDLE: &str = "cdi-uploadserver-signer-bundle";

impl InstallationChains {
    pub fn new(namespace: &str) -> Self {
        let server = |secret, service: &str| {
            let hosts = [
                service.to_owned(),
                format!("{service}.{namespace}"),
                format!("{service}.{namespace}.svc"),
            ];
            Some(LeafSpec { secret, hosts: hosts.into(), name: service.to_owned() })
        };
        let client = LeafSpec {
            secret: "cdi-uploadserver-client-cert",
            hosts: Vec::new(),
            name: api::names::UPLOAD_CLIENT.to_owned(),
        };
        Self([
            ChainSpec {
                signer: "cdi-apiserver-signer",
                bundle: API_BUNDLE,
                leaf: server("cdi-apiserver-server-cert", api::names::API_SERVICE),
            },
            ChainSpec {
                signer: "cdi-uploadproxy-signer",
                bundle: "cdi-uploadproxy-signer-bundle",
                leaf: server("cdi-uploadproxy-server-cert", api::names::UPLOAD_PROXY_SERVICE),
            },
            ChainSpec {
                signer: "cdi-uploadserver-signer",
                bundle: UPLOAD_SERVER_BUNDLE,
                leaf: None,
            },
            ChainSpec {
                signer: "cdi-uploadserver-client-signer",
                bundle: "cdi-uploadserver-client-signer-bundle",
                leaf: Some(client),
            },
        ])
    }

    pub fn secrets(&self) -> Vec<&'static str> {
        let of = |spec: &ChainSpec| [Some(spec.signer), spec.leaf.as_ref().map(|leaf| leaf.secret)];
        self.0.iter().flat_map(of).flatten().collect()
    }

    pub fn bundles(&self) -> Vec<&'static str> {
        self.0.iter().map(|spec| spec.bundle).collect()
    }
}

impl ChainSpec {
    pub fn desired_chain(&self, lifetimes: &CertificateLifetimes) -> DesiredChain {
        let leaf = self.leaf.as_ref().map(|leaf| DesiredLeaf {
            life: if leaf.hosts.is_empty() { lifetimes.client } else { lifetimes.server },
            hosts: leaf.hosts.clone(),
            name: leaf.name.clone(),
        });
        DesiredChain { ca: lifetimes.ca, leaf }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_have_upstream_cdis_names() {
        let chains = InstallationChains::new("cdi");
        assert_eq!(
            chains.secrets(),
            [
                "cdi-apiserver-signer",
                "cdi-apiserver-server-cert",
                "cdi-uploadproxy-signer",
                "cdi-uploadproxy-server-cert",
                "cdi-uploadserver-signer",
                "cdi-uploadserver-client-signer",
                "cdi-uploadserver-client-cert",
            ]
        );
        let hosts = &chains.0[0].leaf.as_ref().unwrap().hosts;
        assert_eq!(hosts, &["cdi-api", "cdi-api.cdi", "cdi-api.cdi.svc"]);
        for spec in &chains.0 {
            assert_eq!(spec.bundle, format!("{}-bundle", spec.signer));
        }
        let client = chains.0[3].desired_chain(&CertificateLifetimes::default()).leaf.unwrap();
        assert_eq!(
            (client.name.as_str(), client.hosts.len()),
            ("client.upload-server.cdi.kubevirt.io", 0)
        );
    }
}
