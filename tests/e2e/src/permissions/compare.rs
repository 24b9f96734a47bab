//! Grants against requests.

use std::collections::BTreeSet;
use std::fmt;

use super::{AuditedRequest, Exception, Grant};

/// Grants, and the observed use of each.
pub struct Comparison {
    /// The namespace of the installation.
    namespace: String,
    grants: Vec<(Grant, Use)>,
    refused: BTreeSet<(String, String, String, RequestScope)>,
    accounts: BTreeSet<String>,
}

/// Where a grant was used.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    in_installation: bool,
    elsewhere: bool,
}

/// The scope of a request, without namespaces whose names differ from one run to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RequestScope {
    /// In no namespace, or in all.
    Cluster,
    /// In the namespace of the installation.
    Installation,
    /// In another namespace.
    Elsewhere,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A request that the authorizer refused.
    Refused(String),
    /// A grant that no request needed.
    Unused(String),
    /// A grant for all namespaces that was needed in that of the installation only.
    TooWide(String),
    /// An exception for what is not granted at all.
    StaleException(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(what) => write!(formatter, "refused: {what}"),
            Self::Unused(what) => write!(formatter, "granted and not used: {what}"),
            Self::TooWide(what) => {
                write!(formatter, "used in the installation's namespace only: {what}")
            }
            Self::StaleException(what) => write!(formatter, "an exception for no grant: {what}"),
        }
    }
}

impl Comparison {
    /// Nothing has been seen yet.
    pub fn new(namespace: &str, grants: Vec<Grant>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            grants: grants.into_iter().map(|grant| (grant, Use::default())).collect(),
            refused: BTreeSet::new(),
            accounts: BTreeSet::new(),
        }
    }

    /// A request has been seen.
    pub fn add(&mut self, request: &AuditedRequest) {
        self.accounts.insert(request.account.clone());
        let scope = match request.namespace.as_str() {
            "" => RequestScope::Cluster,
            namespace if namespace == self.namespace => RequestScope::Installation,
            _ => RequestScope::Elsewhere,
        };
        let AuditedRequest { account, verb, group, resource, .. } = request;
        if request.is_refused {
            let object = format!("{group}/{resource}");
            self.refused.insert((account.clone(), verb.clone(), object, scope));
            return;
        }
        for (grant, used) in &mut self.grants {
            if grant.allows(request) {
                used.in_installation |= scope == RequestScope::Installation;
                used.elsewhere |= scope != RequestScope::Installation;
            }
        }
    }

    /// The accounts that requests were seen of.
    pub fn accounts(&self) -> &BTreeSet<String> {
        &self.accounts
    }

    /// What is wrong, but for what `exceptions` give a reason for.
    pub fn findings(&self, exceptions: &[Exception]) -> BTreeSet<Finding> {
        let mut findings = BTreeSet::new();
        for (account, verb, object, scope) in &self.refused {
            let scope = match scope {
                RequestScope::Cluster => "everywhere",
                RequestScope::Installation => "in the installation's namespace",
                RequestScope::Elsewhere => "in another namespace",
            };
            findings.insert(Finding::Refused(format!("{account}: {verb} {object} {scope}")));
        }
        for (grant, used) in &self.grants {
            if exceptions.iter().any(|exception| exception.is_for(grant)) {
                continue;
            }
            match (used.in_installation, used.elsewhere) {
                (_, true) => {}
                (false, false) => drop(findings.insert(Finding::Unused(grant.to_string()))),
                (true, false) if grant.namespace.is_none() => {
                    findings.insert(Finding::TooWide(grant.to_string()));
                }
                (true, false) => {}
            }
        }
        for exception in exceptions {
            if !self.grants.iter().any(|(grant, _)| exception.is_for(grant)) {
                findings.insert(Finding::StaleException(exception.to_string()));
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    const MANIFEST: &str = r#"
kind: ClusterRole
metadata: { name: cdi }
rules:
- { apiGroups: [""], resources: [pods, services], verbs: [create, list] }
- { apiGroups: [""], resources: [secrets], verbs: [create] }
- { apiGroups: [cdi.kubevirt.io], resources: [cdiconfigs], resourceNames: [config], verbs: [update] }
---
kind: ClusterRoleBinding
metadata: { name: cdi-sa }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cdi }
subjects: [{ kind: ServiceAccount, name: cdi-sa, namespace: cdi }]
---
kind: Role
metadata: { name: cdi-deployment, namespace: cdi }
rules:
- { apiGroups: [""], resources: [secrets], verbs: [get] }
---
kind: RoleBinding
metadata: { name: cdi-deployment, namespace: cdi }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: cdi-deployment }
subjects: [{ kind: ServiceAccount, name: cdi-sa, namespace: cdi }]
---
kind: RoleBinding
metadata: { name: reader, namespace: kube-system }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader }
subjects: [{ kind: ServiceAccount, name: cdi-apiserver, namespace: cdi }]
"#;

    fn compared(requests: &[(&str, &str, &str)]) -> Comparison {
        let grants = read(&[MANIFEST.to_owned()]).unwrap();
        let mut comparison = Comparison::new("cdi", grants);
        for (verb, object, scope) in requests {
            let (group, resource) = object.split_once('/').unwrap();
            let (scope, is_refused) = match scope.strip_suffix(" refused") {
                Some(scope) => (scope, true),
                None => (*scope, false),
            };
            let (namespace, name) = scope.split_once('/').unwrap();
            comparison.add(&AuditedRequest {
                account: "cdi-sa".into(),
                verb: (*verb).into(),
                group: group.into(),
                resource: resource.into(),
                namespace: namespace.into(),
                name: name.into(),
                is_refused,
            });
        }
        comparison
    }

    /// Uses everything.
    const ALL: [(&str, &str, &str); 7] = [
        ("create", "/pods", "vms/"),
        ("list", "/pods", "/"),
        ("create", "/services", "vms/"),
        ("list", "/services", "vms/"),
        ("create", "/secrets", "vms/"),
        ("update", "cdi.kubevirt.io/cdiconfigs", "/config"),
        ("get", "/secrets", "cdi/keys"),
    ];

    fn found(requests: &[(&str, &str, &str)], exceptions: &[Exception]) -> Vec<String> {
        compared(requests).findings(exceptions).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn grants_that_are_all_used_and_requests_that_are_all_granted_are_no_finding() {
        assert_eq!(found(&ALL, &[]), [""; 0]);
        assert_eq!(compared(&ALL).accounts().iter().collect::<Vec<_>>(), ["cdi-sa"]);
    }

    #[test]
    fn each_grant_that_is_not_used_is_a_finding() {
        for left_out in 0..ALL.len() {
            let mut requests = ALL.to_vec();
            let (verb, object, _) = requests.remove(left_out);
            let found = found(&requests, &[]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].starts_with(&format!("granted and not used: cdi-sa: {verb} {object} by"))
            );
        }
    }

    #[test]
    fn use_counts_only_for_the_granted_namespace_and_name() {
        let mut requests = ALL.to_vec();
        requests[5].2 = "/another";
        requests[6].2 = "vms/keys";
        let found = found(&requests, &[]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("get /secrets by Role cdi-deployment"), "{found:?}");
        assert!(
            found[1]
                .ends_with("update cdi.kubevirt.io/cdiconfigs by ClusterRole cdi, names config")
        );
    }

    #[test]
    fn a_grant_for_all_namespaces_that_one_needs_is_too_wide() {
        let mut requests = ALL.to_vec();
        requests[0].2 = "cdi/";
        assert_eq!(
            found(&requests, &[]),
            ["used in the installation's namespace only: cdi-sa: create /pods by ClusterRole cdi"]
        );
    }

    #[test]
    fn a_request_that_is_refused_is_a_finding_and_no_use() {
        let mut requests = ALL.to_vec();
        requests[0].2 = "vms/ refused";
        requests.push(("delete", "/secrets", "vms/a refused"));
        requests.push(("delete", "/secrets", "vms/b refused"));
        assert_eq!(
            found(&requests, &[]),
            [
                "refused: cdi-sa: create /pods in another namespace",
                "refused: cdi-sa: delete /secrets in another namespace",
                "granted and not used: cdi-sa: create /pods by ClusterRole cdi",
            ]
        );
    }

    #[test]
    fn exception_without_a_grant_is_a_finding() {
        let exception = |account, object| Exception {
            account,
            verbs: &["create", "list"],
            objects: object,
            reason: "the test has none",
        };
        let services = exception("cdi-sa", &["/services"]);
        let requests: Vec<_> = ALL.into_iter().filter(|one| one.1 != "/services").collect();
        assert_eq!(found(&requests, &[services]), [""; 0]);
        let stale = exception("cdi-sa", &["/nodes"]);
        assert_eq!(
            found(&ALL, &[stale]),
            ["an exception for no grant: cdi-sa: create, list on /nodes (the test has none)"]
        );
        assert_eq!(found(&requests, &[exception("cdi-operator", &["/services"])]).len(), 3);
    }
}
