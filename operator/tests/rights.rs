//! Who may do what: by the rules of Kubernetes' own authorization, of the roles and bindings that are installed.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod objects;

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use objects::platforms::{desired, openshift};
use objects::{all, name, of_kind, with_options};
use operator::manifests::{
    CHECK_FILE, OPERATOR_FILE, POLLING_JOBS_FILE, STRICT_VIEW_FILE, Settings, release,
};
use serde_json::{Value, json};

/// An installation, with an answer to who may do what.
struct Installed(Vec<Value>);

/// `VERB GROUP/RESOURCE[/SUBRESOURCE] [NAMESPACE[/NAME]]`, the group empty for that of pods; without a namespace in none, which
/// for kinds that are in one means in all.
struct Request<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Request<'a> {
    fn parse(text: &'a str) -> Self {
        let mut words = text.split(' ');
        let (verb, what) = (words.next().unwrap(), words.next().unwrap());
        let (group, resource) = what.split_once('/').unwrap();
        let place = words.next().unwrap_or_default();
        let (namespace, name) = place.split_once('/').unwrap_or((place, ""));
        Self { verb, group, resource, namespace, name }
    }

    fn is_allowed_by(&self, rule: &PolicyRule) -> bool {
        let has = |all: Option<&Vec<String>>, desired: &str| {
            all.is_some_and(|all| all.iter().any(|one| one == desired || one == "*"))
        };
        let names = rule.resource_names.as_deref().unwrap_or_default();
        has(Some(&rule.verbs), self.verb)
            && has(rule.api_groups.as_ref(), self.group)
            && has(rule.resources.as_ref(), self.resource)
            && (names.is_empty() || names.iter().any(|name| name == self.name))
    }
}

impl Installed {
    fn role(&self, kind: &str, desired: &str) -> Option<Vec<PolicyRule>> {
        let role = self.0.iter().find(|role| role["kind"] == kind && name(role) == desired)?;
        Some(serde_json::from_value(role["rules"].clone()).unwrap())
    }

    /// The rules that are bound to a service account, and where they hold: everywhere if that is empty.
    fn rules_of(&self, account: &str) -> Vec<(String, PolicyRule)> {
        let is_bound = |binding: &&Value| {
            let subjects = binding["subjects"].as_array();
            subjects.into_iter().flatten().any(|subject| {
                subject["name"] == "system:authenticated"
                    || (subject["kind"] == "ServiceAccount" && subject["name"] == account)
            })
        };
        let bindings = self.0.iter().filter(|object| object["roleRef"].is_object());
        let mut all = Vec::new();
        for binding in bindings.filter(is_bound) {
            let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
            let role = &binding["roleRef"];
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            // That of kube-system comes with Kubernetes.
            let rules = self.role(&text(&role["kind"]), &text(&role["name"])).unwrap_or_default();
            all.extend(rules.into_iter().map(|rule| (namespace.to_owned(), rule)));
        }
        all
    }

    fn may(&self, account: &str, request: &str) -> bool {
        let request = Request::parse(request);
        self.rules_of(account).iter().any(|(namespace, rule)| {
            (namespace.is_empty() || namespace == request.namespace) && request.is_allowed_by(rule)
        })
    }

    fn role_allows(&self, role: &str, request: &str) -> bool {
        let request = Request::parse(request);
        self.role("ClusterRole", role).unwrap().iter().any(|rule| request.is_allowed_by(rule))
    }
}

#[test]
fn programs_may_do_what_they_need() {
    let installed = Installed(all());
    for (account, request) in [
        ("cdi-sa", "create cdi.kubevirt.io/datavolumes vms"),
        ("cdi-sa", "patch cdi.kubevirt.io/datavolumes/status vms/disk"),
        ("cdi-sa", "update cdi.kubevirt.io/datavolumes/finalizers vms/disk"),
        ("cdi-sa", "update cdi.kubevirt.io/cdis/finalizers /cdi"),
        ("cdi-sa", "update cdi.kubevirt.io/dataimportcrons/finalizers vms/cron"),
        ("cdi-sa", "update cdi.kubevirt.io/objecttransfers/finalizers /move"),
        ("cdi-sa", "update /pods/finalizers vms/importer"),
        ("cdi-sa", "update cdi.kubevirt.io/cdiconfigs /config"),
        ("cdi-sa", "watch config.openshift.io/proxies /cluster"),
        ("cdi-sa", "create /secrets vms"),
        ("cdi-sa", "get /secrets cdi/registry"),
        ("cdi-sa", "get /configmaps openshift-config/user-ca"),
        ("cdi-sa", "update /configmaps cdi/cdi-platform-proxy-ca"),
        ("cdi-sa", "delete batch/cronjobs cdi/fedora"),
        ("cdi-sa", "update coordination.k8s.io/leases cdi/cdi-controller-leader-election-helper"),
        ("cdi-apiserver", "get /secrets cdi/cdi-api-signing-key"),
        ("cdi-apiserver", "create /secrets cdi"),
        ("cdi-apiserver", "watch cdi.kubevirt.io/cdiconfigs /config"),
        ("cdi-apiserver", "get snapshot.storage.k8s.io/volumesnapshots vms/golden"),
        ("cdi-apiserver", "list /persistentvolumes"),
        ("cdi-apiserver", "watch /persistentvolumes"),
        ("cdi-apiserver", "watch storage.k8s.io/storageclasses"),
        ("cdi-apiserver", "watch cdi.kubevirt.io/storageprofiles"),
        ("cdi-apiserver", "list cdi.kubevirt.io/dataimportcrons vms"),
        ("cdi-uploadproxy", "watch /persistentvolumeclaims vms/disk"),
        ("cdi-uploadproxy", "get /configmaps cdi/cdi-uploadserver-signer-bundle"),
        ("cdi-operator", "update /secrets cdi/cdi-apiserver-signer"),
    ] {
        assert!(installed.may(account, request), "{account}: {request}");
    }
}

#[test]
fn programs_may_not_do_what_an_attacker_would_have_them_do() {
    let installed = Installed(all());
    for (account, request) in [
        // A DataVolume that the controller creates for a user is no proof of a right to copy.
        ("cdi-sa", "create cdi.kubevirt.io/datavolumes/source vms"),
        ("cdi-sa", "delete /secrets vms/any"),
        ("cdi-sa", "get /secrets vms/any"),
        ("cdi-sa", "list /secrets cdi"),
        ("cdi-sa", "update /secrets cdi/cdi-uploadserver-signer"),
        // It could issue certificates for its own servers.
        ("cdi-sa", "update /configmaps cdi/cdi-apiserver-signer-bundle"),
        ("cdi-sa", "delete /configmaps cdi/cdi-uploadserver-signer-bundle"),
        ("cdi-sa", "list /configmaps vms"),
        // It would be able to mount whatever the storage has.
        ("cdi-sa", "create snapshot.storage.k8s.io/volumesnapshotcontents"),
        ("cdi-sa", "create /persistentvolumes"),
        ("cdi-sa", "delete /persistentvolumes /pv"),
        ("cdi-sa", "deletecollection /persistentvolumeclaims vms"),
        ("cdi-sa", "deletecollection snapshot.storage.k8s.io/volumesnapshots vms"),
        ("cdi-sa", "patch /pods vms/any"),
        ("cdi-sa", "create /pods/exec vms/any"),
        ("cdi-sa", "list /namespaces"),
        ("cdi-sa", "patch cdi.kubevirt.io/cdis /cdi"),
        ("cdi-sa", "delete cdi.kubevirt.io/dataimportcrons vms/cron"),
        ("cdi-sa", "create batch/jobs cdi"),
        ("cdi-sa", "create batch/cronjobs cdi"),
        ("cdi-sa", "update coordination.k8s.io/leases cdi/another"),
        // The program that all of the cluster reaches has neither of the signers.
        ("cdi-apiserver", "get /secrets cdi/cdi-uploadserver-signer"),
        ("cdi-apiserver", "get /secrets cdi/cdi-uploadserver-client-cert"),
        ("cdi-apiserver", "list /secrets cdi"),
        ("cdi-apiserver", "update /secrets cdi/cdi-api-signing-key"),
        ("cdi-apiserver", "list /persistentvolumeclaims vms"),
        ("cdi-apiserver", "list cdi.kubevirt.io/datasources vms"),
        ("cdi-uploadproxy", "list /persistentvolumeclaims vms"),
        ("cdi-uploadproxy", "get /secrets cdi/cdi-uploadserver-signer"),
        ("cdi-uploadproxy", "get /configmaps cdi/any"),
        ("cdi-uploadproxy", "create cdi.kubevirt.io/datavolumes/source vms"),
        ("cdi-operator", "get /secrets cdi/registry"),
        ("cdi-operator", "get /secrets vms/any"),
        ("cdi-operator", "patch admissionregistration.k8s.io/validatingwebhookconfigurations /any"),
        ("cdi-cronjob", "patch cdi.kubevirt.io/dataimportcrons vms/cron"),
        ("cdi-cronjob", "get cdi.kubevirt.io/dataimportcrons vms/cron"),
    ] {
        assert!(!installed.may(account, request), "{account}: {request}");
    }
}

#[test]
fn nothing_is_granted_by_a_wildcard_to_programs() {
    let installed = Installed(with_options(&[POLLING_JOBS_FILE]));
    let accounts: Vec<_> =
        of_kind("ServiceAccount").iter().map(|one| name(one).to_owned()).collect();
    assert_eq!(accounts.len(), 6);
    for account in &accounts {
        for (_, rule) in installed.rules_of(account) {
            let groups = rule.api_groups.iter().flatten();
            let mut all = rule.verbs.iter().chain(rule.resources.iter().flatten()).chain(groups);
            assert!(!all.any(|word| word.contains('*')), "{account}: {rule:?}");
            for verb in ["escalate", "bind", "impersonate", "deletecollection"] {
                assert!(!rule.verbs.iter().any(|one| one == verb), "{account}: {rule:?}");
            }
            // Kubernetes lets no rule with names allow this.
            let names = rule.resource_names.is_some();
            assert!(!(names && rule.verbs.iter().any(|verb| verb == "create")), "{rule:?}");
        }
    }
}

#[test]
fn secrets_of_other_namespaces_are_read_and_deleted_by_no_program() {
    for object in of_kind("ClusterRole") {
        let rules: Vec<PolicyRule> = serde_json::from_value(object["rules"].clone()).unwrap();
        for rule in rules {
            let of_secrets =
                rule.resources.iter().flatten().any(|one| one == "secrets" || one == "*");
            let of_core = rule.api_groups.iter().flatten().any(|one| one.is_empty() || one == "*");
            let verbs: BTreeSet<_> = rule.verbs.iter().map(String::as_str).collect();
            assert!(!(of_secrets && of_core) || verbs == ["create"].into(), "{}", name(&object));
        }
    }
}

#[test]
fn a_token_is_given_to_programs_and_to_jobs_that_ask_registries() {
    let gives = |account: &Value| account["automountServiceAccountToken"] != false;
    let with_token: Vec<_> = of_kind("ServiceAccount")
        .iter()
        .filter(|one| gives(one))
        .map(|one| name(one).to_owned())
        .collect();
    assert_eq!(with_token, ["cdi-operator", "cdi-apiserver", "cdi-sa", "cdi-uploadproxy"]);
    let polling = Installed(with_options(&[POLLING_JOBS_FILE]));
    for request in [
        "get cdi.kubevirt.io/dataimportcrons vms/cron",
        "patch cdi.kubevirt.io/dataimportcrons vms/cron",
    ] {
        assert!(polling.may("cdi-cronjob", request), "{request}");
    }
    for request in [
        "list cdi.kubevirt.io/dataimportcrons vms",
        "update cdi.kubevirt.io/dataimportcrons vms/cron",
        "get /secrets cdi/registry",
        "create /pods cdi",
    ] {
        assert!(!polling.may("cdi-cronjob", request), "{request}");
    }
    for request in
        ["create batch/jobs cdi", "create batch/cronjobs cdi", "update batch/cronjobs cdi/fedora"]
    {
        assert!(polling.may("cdi-sa", request), "{request}");
        let elsewhere = request.replace(" cdi", " vms");
        assert!(!polling.may("cdi-sa", &elsewhere), "{elsewhere}");
    }
}

#[test]
fn users_have_the_documented_roles() {
    let installed = Installed(all());
    let allows = |role: &str, request: &str| installed.role_allows(role, request);
    for role in ["cdi.kubevirt.io:edit", "cdi.kubevirt.io:admin"] {
        for request in [
            "delete cdi.kubevirt.io/datavolumes vms/disk",
            "create cdi.kubevirt.io/datavolumes/source vms/disk",
            "create upload.cdi.kubevirt.io/uploadtokenrequests vms",
        ] {
            assert!(allows(role, request), "{role}: {request}");
        }
        assert!(!allows(role, "patch cdi.kubevirt.io/cdiconfigs /config"), "{role}");
        assert!(!allows(role, "create cdi.kubevirt.io/objecttransfers"), "{role}");
    }
    let view = "cdi.kubevirt.io:view";
    assert!(allows(view, "watch cdi.kubevirt.io/datavolumes vms"));
    assert!(!allows(view, "create cdi.kubevirt.io/datavolumes vms"));
    assert!(!allows(view, "create upload.cdi.kubevirt.io/uploadtokenrequests vms"));
    let sourcer = "cdi.kubevirt.io:clone-sourcer";
    assert!(allows(sourcer, "create cdi.kubevirt.io/datavolumes/source vms/disk"));
    assert!(!allows(sourcer, "get cdi.kubevirt.io/datavolumes vms/disk"));
    for (role, to) in [("edit", "edit"), ("view", "view"), ("admin", "admin")] {
        let role = format!("cdi.kubevirt.io:{role}");
        let object =
            of_kind("ClusterRole").into_iter().find(|object| name(object) == role).unwrap();
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        assert_eq!(object["metadata"]["labels"][label], "true");
    }
}

#[test]
fn viewers_copy_volumes_unless_the_strict_role_is_installed() {
    let (view, copy) =
        ("cdi.kubevirt.io:view", "create cdi.kubevirt.io/datavolumes/source vms/disk");
    let (usual, strict) = (Installed(all()), Installed(with_options(&[STRICT_VIEW_FILE])));
    assert!(usual.role_allows(view, copy));
    assert!(!strict.role_allows(view, copy));
    // And nothing else changes.
    assert!(strict.role_allows("cdi.kubevirt.io:clone-sourcer", copy));
    for (verb, is_allowed) in [("get", true), ("list", true), ("watch", true), ("delete", false)] {
        for kind in
            ["cdi.kubevirt.io/datavolumes", "forklift.cdi.kubevirt.io/ovirtvolumepopulators"]
        {
            let request = format!("{verb} {kind} vms/disk");
            assert_eq!(strict.role_allows(view, &request), is_allowed, "{request}");
        }
    }
    assert_eq!(usual.0.len(), strict.0.len());
}

/// Tools that compare roles compare lists.
#[test]
fn roles_of_users_list_resources_in_the_order_of_upstream() {
    let resources = |role: &str| -> Vec<String> {
        let role = of_kind("ClusterRole").into_iter().find(|one| name(one) == role).unwrap();
        let first = role["rules"][0]["resources"].as_array().unwrap().clone();
        first.iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let sources = ["volumeimportsources", "volumeuploadsources", "volumeclonesources"];
    let owned = [&["datavolumes", "dataimportcrons", "datasources"][..], &sources].concat();
    assert_eq!(resources("cdi.kubevirt.io:admin"), owned);
    assert_eq!(resources("cdi.kubevirt.io:edit"), owned);
    let seen = [
        &[
            "cdiconfigs",
            "dataimportcrons",
            "datasources",
            "datavolumes",
            "objecttransfers",
            "storageprofiles",
        ][..],
        &sources,
    ];
    assert_eq!(resources("cdi.kubevirt.io:view"), seen.concat());
}

/// What a file of `deploy/operator` installs.
fn released(file: &str) -> Installed {
    let files = release(&Settings::default(), "1.2.3");
    Installed(files.into_iter().find(|(name, _)| *name == file).unwrap().1)
}

fn installer() -> Installed {
    released(OPERATOR_FILE)
}

/// All objects that the operator may have to create.
fn deployed() -> Vec<Value> {
    let spec = json!({
        "priorityClass": "system-cluster-critical",
        "infra": { "apiServerReplicas": 2 },
        "config": { "uploadProxyURLOverride": "https://uploads.example.test" },
        "customizeComponents": { "flags": { "controller": { "poll-from": "jobs" } } },
    });
    let mut all = desired(spec.clone(), &openshift()).objects;
    let mut ingress = openshift();
    ingress.apis.remove(&operator::desired::PlatformApi::Route);
    all.extend(desired(spec, &ingress).objects.into_iter().filter(|one| one["kind"] == "Ingress"));
    all
}

#[test]
fn operator_may_create_and_keep_every_object_of_an_installation() {
    let installer = installer();
    for object in deployed() {
        for verb in ["list", "watch", "create", "get", "update"] {
            let request = format!("{verb} {} {}", resource(&object), address(&object));
            assert!(installer.may("cdi-operator", &request), "{request}");
        }
    }
}

#[test]
fn check_reads_every_object_of_an_installation_and_writes_none() {
    let check = released(CHECK_FILE);
    let account = "cdi-operator-check";
    for object in deployed() {
        let request = format!("get {} {}", resource(&object), address(&object));
        assert!(check.may(account, &request), "{request}");
    }
    for request in [
        "list cdi.kubevirt.io/cdis",
        "get /configmaps cdi/cdi-config",
        "get /configmaps cdi/cdi-uploadproxy-signer-bundle",
        "list route.openshift.io/routes cdi",
    ] {
        assert!(check.may(account, request), "{request}");
    }
    let own = check.0.iter().filter(|role| role["rules"].is_array());
    let rules = own.flat_map(|role| role["rules"].as_array().unwrap());
    for rule in rules {
        let verbs = rule["verbs"].as_array().unwrap();
        assert!(verbs.iter().all(|verb| verb == "get" || verb == "list"), "{rule}");
    }
    assert!(!check.may(account, "get /secrets cdi/cdi-apiserver-signer"));
    // Deleting the check deletes nothing that others use.
    for object in &check.0 {
        assert_eq!(name(object), account);
    }
}

/// `GROUP/RESOURCE`
fn resource(object: &Value) -> String {
    let (group, _) = object["apiVersion"].as_str().unwrap().rsplit_once('/').unwrap_or_default();
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = match kind.as_str() {
        "ingress" => "ingresses".to_owned(),
        "networkpolicy" => "networkpolicies".to_owned(),
        "securitycontextconstraints" => kind,
        _ => format!("{kind}s"),
    };
    format!("{group}/{plural}")
}

/// `NAMESPACE/NAME`
fn address(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    format!("{namespace}/{}", name(object))
}

/// Kubernetes refuses a role with permissions that its author does not have.
#[test]
fn operator_has_every_permission_that_it_grants() {
    let installer = installer();
    let held = installer.rules_of("cdi-operator");
    let mut checked = 0;
    for role in deployed() {
        let Some(rules) = role["rules"].as_array() else { continue };
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in rules {
            let rule: PolicyRule = serde_json::from_value(rule.clone()).unwrap();
            let is_held = held.iter().any(|(place, held)| {
                (place.is_empty() || place == namespace)
                    && held.non_resource_urls == rule.non_resource_urls
                    && covers(held.api_groups.as_ref(), rule.api_groups.as_ref())
                    && covers(held.resources.as_ref(), rule.resources.as_ref())
                    && covers(Some(&held.verbs), Some(&rule.verbs))
                    && (held.resource_names.is_none() || held.resource_names == rule.resource_names)
            });
            assert!(is_held, "{}: {rule:?}", name(&role));
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}

fn covers(held: Option<&Vec<String>>, granted: Option<&Vec<String>>) -> bool {
    let held = held.map(Vec::as_slice).unwrap_or_default();
    granted.into_iter().flatten().all(|one| held.contains(one))
}

#[test]
fn operator_may_do_its_work_and_no_more() {
    let installer = installer();
    for request in [
        "update cdi.kubevirt.io/cdis /cdi",
        "update cdi.kubevirt.io/cdis/finalizers /cdi",
        "list cdi.kubevirt.io/datavolumes",
        "delete /pods vms/importer",
        "delete /services vms/cdi-upload-disk",
        "update apiextensions.k8s.io/customresourcedefinitions/status /datavolumes.cdi.kubevirt.io",
        "update /configmaps cdi/cdi-config",
        "delete /configmaps cdi/cdi-insecure-registries",
        "delete apps/deployments cdi/cdi-deployment",
        "delete networking.k8s.io/ingresses cdi/cdi-uploadproxy",
        "delete admissionregistration.k8s.io/mutatingwebhookconfigurations /cdi-api-pvc-mutate",
        "update /secrets cdi/cdi-apiserver-signer",
        "get scheduling.k8s.io/priorityclasses /kubevirt-cluster-critical",
        "get discovery.k8s.io/endpointslices default/kubernetes",
        "create route.openshift.io/routes/custom-host cdi",
        "update coordination.k8s.io/leases cdi/cdi-operator-leader-election-helper",
        "create /events default",
        "delete admissionregistration.k8s.io/mutatingwebhookconfigurations /cdi-api-dataimportcron-mutate",
    ] {
        assert!(installer.may("cdi-operator", request), "{request}");
    }
    for request in [
        "get /secrets vms/any",
        "list /secrets vms",
        "update /secrets cdi/registry",
        "delete /secrets cdi/registry",
        "delete /secrets cdi/cdi-api-signing-key",
        "delete /configmaps cdi/cdi-config",
        "delete security.openshift.io/securitycontextconstraints /containerized-data-importer",
        "update /configmaps cdi/any",
        "list /configmaps vms",
        "update rbac.authorization.k8s.io/clusterroles /cluster-admin",
        "delete rbac.authorization.k8s.io/clusterroles /any",
        "update rbac.authorization.k8s.io/clusterrolebindings /any",
        "create rbac.authorization.k8s.io/roles vms",
        "create rbac.authorization.k8s.io/rolebindings kube-system",
        "escalate rbac.authorization.k8s.io/clusterroles /cdi",
        "bind rbac.authorization.k8s.io/clusterroles /cluster-admin",
        "impersonate /users /admin",
        "delete apiextensions.k8s.io/customresourcedefinitions /virtualmachines.kubevirt.io",
        "update admissionregistration.k8s.io/validatingwebhookconfigurations /any",
        "update apiregistration.k8s.io/apiservices /v1beta1.metrics.k8s.io",
        "update security.openshift.io/securitycontextconstraints /restricted-v2",
        "create apps/deployments vms",
        "create /pods/exec cdi/any",
        "create /serviceaccounts/token cdi/cdi-sa",
        "delete cdi.kubevirt.io/cdis /cdi",
        "delete /namespaces /cdi",
        "get discovery.k8s.io/endpointslices vms/any",
    ] {
        assert!(!installer.may("cdi-operator", request), "{request}");
    }
}

/// Those that it has only to grant them are in roles of their own.
#[test]
fn operator_works_without_the_permissions_that_it_grants() {
    let mut own = installer();
    own.0.retain(|object| name(object) != "cdi-operator-granted");
    for object in deployed() {
        for verb in ["list", "watch", "create", "get", "update"] {
            let request = format!("{verb} {} {}", resource(&object), address(&object));
            assert!(own.may("cdi-operator", &request), "{request}");
        }
    }
    for request in [
        "get cdi.kubevirt.io/cdiconfigs /config",
        "list cdi.kubevirt.io/datavolumes",
        "update cdi.kubevirt.io/datavolumes vms/disk",
        "list /pods vms",
        "delete /services vms/cdi-upload-disk",
        "create /events default",
        "create authentication.k8s.io/tokenreviews",
    ] {
        assert!(own.may("cdi-operator", request), "{request}");
    }
    for request in [
        "create /persistentvolumeclaims vms",
        "create /pods vms",
        "create cdi.kubevirt.io/datavolumes vms",
        "create /secrets vms",
        "get /secrets cdi/registry",
        "list batch/cronjobs cdi",
    ] {
        assert!(!own.may("cdi-operator", request), "{request}");
        assert!(installer().may("cdi-operator", request), "{request}");
    }
}

/// A wildcard is in those rules only that the roles of users have.
#[test]
fn operator_has_wildcards_only_to_grant_them_to_users() {
    let of_users: Vec<PolicyRule> = deployed()
        .iter()
        .filter(|role| role["kind"] == "ClusterRole" && name(role).starts_with("cdi.kubevirt.io:"))
        .flat_map(|role| serde_json::from_value::<Vec<PolicyRule>>(role["rules"].clone()).unwrap())
        .collect();
    for (_, rule) in installer().rules_of("cdi-operator") {
        let groups = rule.api_groups.iter().flatten();
        let words = rule.verbs.iter().chain(rule.resources.iter().flatten()).chain(groups);
        let words: Vec<_> = words.map(String::as_str).collect();
        assert!(!words.contains(&"*") || of_users.contains(&rule), "{rule:?}");
        for verb in ["escalate", "bind", "impersonate", "deletecollection"] {
            assert!(!words.contains(&verb), "{rule:?}");
        }
        let names = rule.resource_names.is_some();
        assert!(!(names && rule.verbs.iter().any(|verb| verb == "create")), "{rule:?}");
    }
}
