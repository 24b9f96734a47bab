//! The certificates of an installation: who vouches for whom, and where that is kept.

use auth::Lifetimes;
use auth::rotation::{Wanted, WantedLeaf};

/// An authority, the bundle of those that are trusted, and whom it vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The authority's Secret, which its certificates are named after.
    pub signer: &'static str,
    /// The ConfigMap of its bundle.
    pub bundle: &'static str,
    /// `None` where the controller makes one for each upload.
    pub leaf: Option<Leaf>,
}

/// Whom an authority vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its Secret.
    pub secret: &'static str,
    /// A server's names; empty for a client.
    pub hosts: Vec<String>,
    /// The common name.
    pub name: String,
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chains(pub [Link; 4]);

/// The bundle of whom the cluster's API server is to trust.
pub const API_BUNDLE: &str = "cdi-apiserver-signer-bundle";
/// The bundle of whom the upload proxy is to trust.
pub const UPLOAD_SERVER_BUNDLE: &str = "cdi-uploadserver-signer-bundle";

impl Chains {
    /// Those of an installation in this namespace.
    pub fn of(namespace: &str) -> Self {
        let server = |secret, service: &str| {
            let hosts = [
                service.to_owned(),
                format!("{service}.{namespace}"),
                format!("{service}.{namespace}.svc"),
            ];
            Some(Leaf { secret, hosts: hosts.into(), name: service.to_owned() })
        };
        let client = Leaf {
            secret: "cdi-uploadserver-client-cert",
            hosts: Vec::new(),
            name: api::names::UPLOAD_CLIENT.to_owned(),
        };
        Self([
            Link {
                signer: "cdi-apiserver-signer",
                bundle: API_BUNDLE,
                leaf: server("cdi-apiserver-server-cert", api::names::API_SERVICE),
            },
            Link {
                signer: "cdi-uploadproxy-signer",
                bundle: "cdi-uploadproxy-signer-bundle",
                leaf: server("cdi-uploadproxy-server-cert", api::names::UPLOAD_PROXY_SERVICE),
            },
            Link { signer: "cdi-uploadserver-signer", bundle: UPLOAD_SERVER_BUNDLE, leaf: None },
            Link {
                signer: "cdi-uploadserver-client-signer",
                bundle: "cdi-uploadserver-client-signer-bundle",
                leaf: Some(client),
            },
        ])
    }

    /// The names of all Secrets.
    pub fn secrets(&self) -> Vec<&'static str> {
        let of = |link: &Link| [Some(link.signer), link.leaf.as_ref().map(|leaf| leaf.secret)];
        self.0.iter().flat_map(of).flatten().collect()
    }

    /// The names of all ConfigMaps.
    pub fn bundles(&self) -> Vec<&'static str> {
        self.0.iter().map(|link| link.bundle).collect()
    }
}

impl Link {
    /// What its certificates should be.
    pub fn wanted(&self, lifetimes: &Lifetimes) -> Wanted {
        let leaf = self.leaf.as_ref().map(|leaf| WantedLeaf {
            life: if leaf.hosts.is_empty() { lifetimes.client } else { lifetimes.server },
            hosts: leaf.hosts.clone(),
            name: leaf.name.clone(),
        });
        Wanted { authority: lifetimes.authority, leaf }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_certificate_has_its_documented_place() {
        let chains = Chains::of("cdi");
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
        for link in &chains.0 {
            assert_eq!(link.bundle, format!("{}-bundle", link.signer));
        }
        let client = chains.0[3].wanted(&Lifetimes::default()).leaf.unwrap();
        assert_eq!(
            (client.name.as_str(), client.hosts.len()),
            ("client.upload-server.cdi.kubevirt.io", 0)
        );
    }
}
