//! The user whose permissions a clone needs.

use api::{labels, names};

use crate::review::{Request, User};

/// The service account of a DataImportCron that names none, and of everything else.
const DEFAULT_ACCOUNT: &str = "default";

/// Whether the user is a program of this installation. Other service accounts of its namespace are not: HCO installs
/// KubeVirt and others in the same one.
pub fn is_own_program(user: &User, installation_namespace: &str) -> bool {
    names::SERVICE_ACCOUNTS
        .iter()
        .any(|name| user.username == names::service_account_user(installation_namespace, name))
}

/// The DataImportCron that a DataVolume of the controller is labelled with.
pub fn cron_name(request: &Request) -> Option<&str> {
    let all = request.object.as_ref()?.pointer("/metadata/labels")?;
    all.get(labels::DATA_IMPORT_CRON)?.as_str().filter(|name| api::metadata::is_object_name(name))
}

/// A service account of a namespace, as the API server authenticates it.
pub fn on_behalf_of(namespace: &str, account: Option<&str>) -> User {
    let account = account.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_ACCOUNT);
    User {
        username: names::service_account_user(namespace, account),
        groups: names::service_account_groups(namespace).into(),
        ..User::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_installations_programs_act_for_other_users() {
        let user = |username: &str| User { username: username.into(), ..User::default() };
        for (username, expected) in [
            ("system:serviceaccount:cdi:cdi-sa", true),
            ("system:serviceaccount:cdi:cdi-operator", true),
            ("system:serviceaccount:cdi:kubevirt-controller", false),
            ("system:serviceaccount:other:cdi-sa", false),
            ("system:serviceaccount:cdi:cdi-sa-2", false),
            ("cdi-sa", false),
            ("", false),
        ] {
            assert_eq!(is_own_program(&user(username), "cdi"), expected, "{username}");
        }
    }

    #[test]
    fn service_account_is_one_of_the_namespace() {
        let of = |account| on_behalf_of("images", account);
        assert_eq!(of(None).username, "system:serviceaccount:images:default");
        assert_eq!(of(Some("")).username, "system:serviceaccount:images:default");
        assert_eq!(of(Some("robot")).username, "system:serviceaccount:images:robot");
        assert_eq!(
            of(None).groups,
            ["system:serviceaccounts", "system:serviceaccounts:images", "system:authenticated"]
        );
        assert_eq!((of(None).uid, of(None).extra.len()), (String::new(), 0));
    }

    #[test]
    fn cron_name_comes_from_the_label() {
        let name = |labels: serde_json::Value| {
            let object = Some(json!({ "metadata": { "labels": labels } }));
            let request = Request { object, ..Request::default() };
            cron_name(&request).map(str::to_owned)
        };
        assert_eq!(name(json!({ labels::DATA_IMPORT_CRON: "fedora" })).as_deref(), Some("fedora"));
        assert_eq!(name(json!({ labels::DATA_IMPORT_CRON: "../x" })), None);
        assert_eq!(name(json!(null)), None);
    }
}
