//! What the programs of an installation and its users may do.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod objects;

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use objects::authorization::Installed;
use objects::{all, name, of_kind, with_options};
use operator::manifests::{POLLING_JOBS_FILE, STRICT_VIEW_FILE};
use serde_json::Value;

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
