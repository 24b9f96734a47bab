//! The operator's environment variables, with upstream CDI's names.

use crate::manifests::{Images, RUNBOOK_URL_TEMPLATE, Viewers};

pub(crate) const DEPLOY_CLUSTER_RESOURCES: &str = "DEPLOY_CLUSTER_RESOURCES";
pub(crate) const VERSION: &str = "OPERATOR_VERSION";
pub(crate) const CONTROLLER_IMAGE: &str = "CONTROLLER_IMAGE";
pub(crate) const IMPORTER_IMAGE: &str = "IMPORTER_IMAGE";
/// Not upstream CDI's: imports from VMware have an image of their own.
pub(crate) const IMPORTER_VDDK_IMAGE: &str = "IMPORTER_VDDK_IMAGE";
pub(crate) const CLONER_IMAGE: &str = "CLONER_IMAGE";
pub(crate) const OVIRT_POPULATOR_IMAGE: &str = "OVIRT_POPULATOR_IMAGE";
pub(crate) const APISERVER_IMAGE: &str = "APISERVER_IMAGE";
pub(crate) const UPLOAD_SERVER_IMAGE: &str = "UPLOAD_SERVER_IMAGE";
pub(crate) const UPLOAD_PROXY_IMAGE: &str = "UPLOAD_PROXY_IMAGE";
pub(crate) const VERBOSITY: &str = "VERBOSITY";
pub(crate) const PULL_POLICY: &str = "PULL_POLICY";
pub(crate) const MONITORING_NAMESPACE: &str = "MONITORING_NAMESPACE";
pub(crate) const RUNBOOK_URL: &str = "RUNBOOK_URL_TEMPLATE";
/// Not upstream CDI's: `false` takes from the role `cdi.kubevirt.io:view` the permission to clone.
pub(crate) const VIEWERS_MAY_CLONE: &str = "VIEWERS_MAY_CLONE";

/// `true`: all objects are also written to the ConfigMap `cdi-install-strategy`.
pub(crate) const DUMP_INSTALL_STRATEGY: &str = "DUMP_INSTALL_STRATEGY";

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// What the operator deploys for every CDI object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorEnvironment {
    /// Of the installation.
    pub namespace: String,
    /// `OPERATOR_VERSION`
    pub version: String,
    pub images: Images,
    pub pull_policy: String,
    pub verbosity: i32,
    /// `None`: the usual one of the platform.
    pub monitoring_namespace: Option<String>,
    /// `None`: the runbooks of upstream CDI. Contains `%s` once.
    pub runbook_url_template: Option<String>,
    /// Whether CRDs, cluster roles and other objects without a namespace are deployed.
    pub deploys_cluster_resources: bool,
    pub viewers: Viewers,
    /// `DUMP_INSTALL_STRATEGY`
    pub dumps_objects: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    #[error("the environment variable {0} is not set")]
    Missing(&'static str),
    #[error("cannot parse the environment variable {name}={got:?}: expected {expected}")]
    Invalid { name: &'static str, got: String, expected: &'static str },
}

impl OperatorEnvironment {
    /// `None` if no variable names a version or an image: then the programs are installed by plain manifests, and the operator
    /// keeps their certificates only.
    ///
    /// # Errors
    /// When only some of the required variables are set, or a value is invalid.
    pub fn from_environment(
        read: impl Fn(&str) -> Option<String>,
        namespace: &str,
    ) -> Result<Option<Self>, EnvironmentError> {
        let optional = |name: &'static str| read(name).filter(|value| !value.is_empty());
        let required = |name: &'static str| optional(name).ok_or(EnvironmentError::Missing(name));
        let names = [
            VERSION,
            CONTROLLER_IMAGE,
            IMPORTER_IMAGE,
            CLONER_IMAGE,
            OVIRT_POPULATOR_IMAGE,
            APISERVER_IMAGE,
            UPLOAD_SERVER_IMAGE,
            UPLOAD_PROXY_IMAGE,
        ];
        if names.iter().all(|name| optional(name).is_none()) {
            return Ok(None);
        }
        let images = Images {
            controller: required(CONTROLLER_IMAGE)?,
            importer: required(IMPORTER_IMAGE)?,
            importer_vddk: optional(IMPORTER_VDDK_IMAGE),
            cloner: required(CLONER_IMAGE)?,
            apiserver: required(APISERVER_IMAGE)?,
            upload_server: required(UPLOAD_SERVER_IMAGE)?,
            upload_proxy: required(UPLOAD_PROXY_IMAGE)?,
            ovirt_populator: required(OVIRT_POPULATOR_IMAGE)?,
        };
        let pull_policy = parsed(
            PULL_POLICY,
            optional(PULL_POLICY),
            "Always, IfNotPresent or Never",
            "IfNotPresent".to_owned(),
            |text| PULL_POLICIES.contains(&text).then(|| text.to_owned()),
        )?;
        let verbosity =
            parsed(VERBOSITY, optional(VERBOSITY), "a number from 0 to 10", 1, |text| {
                text.parse().ok().filter(|level| (0..=10).contains(level))
            })?;
        let expected = "a URL with one %s";
        let runbook_url_template =
            parsed(RUNBOOK_URL, optional(RUNBOOK_URL), expected, None, |text| {
                (text.matches("%s").count() == 1).then(|| Some(text.to_owned()))
            })?;
        let boolean = |name, default| {
            parsed(name, optional(name), "true or false", default, contract::go_bool)
        };
        Ok(Some(Self {
            namespace: namespace.to_owned(),
            version: required(VERSION)?,
            images,
            pull_policy,
            verbosity,
            monitoring_namespace: optional(MONITORING_NAMESPACE),
            runbook_url_template,
            deploys_cluster_resources: boolean(DEPLOY_CLUSTER_RESOURCES, true)?,
            viewers: if boolean(VIEWERS_MAY_CLONE, true)? {
                Viewers::MayClone
            } else {
                Viewers::MayRead
            },
            dumps_objects: boolean(DUMP_INSTALL_STRATEGY, false)?,
        }))
    }

    pub(super) fn runbooks(&self) -> &str {
        self.runbook_url_template.as_deref().unwrap_or(RUNBOOK_URL_TEMPLATE)
    }
}

fn parsed<T>(
    name: &'static str,
    value: Option<String>,
    expected: &'static str,
    default: T,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, EnvironmentError> {
    match value {
        None => Ok(default),
        Some(got) => parse(&got).ok_or(EnvironmentError::Invalid { name, got, expected }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(name: &str) -> Option<String> {
        match name {
            VERSION => Some("1.66.0".into()),
            name if name.ends_with("_IMAGE") && name != IMPORTER_VDDK_IMAGE => {
                Some(format!("r.example/{}:1", name.to_lowercase()))
            }
            _ => None,
        }
    }

    fn with(
        name: &'static str,
        value: &'static str,
    ) -> Result<Option<OperatorEnvironment>, EnvironmentError> {
        let read = |one: &str| if one == name { Some(value.to_owned()) } else { complete(one) };
        OperatorEnvironment::from_environment(read, "cdi")
    }

    #[test]
    fn optional_variables_have_defaults() {
        let environment = with("none", "").unwrap().unwrap();
        assert_eq!(environment.version, "1.66.0");
        assert_eq!(environment.images.upload_proxy, "r.example/upload_proxy_image:1");
        assert_eq!(environment.images.importer_vddk, None);
        assert_eq!((environment.verbosity, environment.pull_policy.as_str()), (1, "IfNotPresent"));
        assert!(environment.deploys_cluster_resources);
        assert_eq!(environment.monitoring_namespace, None);
        assert_eq!(environment.runbooks(), RUNBOOK_URL_TEMPLATE);
        assert_eq!(environment.viewers, Viewers::MayClone);
        assert!(!environment.dumps_objects);
    }

    #[test]
    fn environment_without_version_and_images_is_that_of_plain_manifests() {
        let none = OperatorEnvironment::from_environment(|_| None, "cdi");
        assert_eq!(none, Ok(None));
        let empty = OperatorEnvironment::from_environment(|_| Some(String::new()), "cdi");
        assert_eq!(empty, Ok(None));
        let verbosity = |name: &str| (name == VERBOSITY).then(|| "3".to_owned());
        assert_eq!(OperatorEnvironment::from_environment(verbosity, "cdi"), Ok(None));
    }

    #[test]
    fn each_required_variable_is_named_if_it_is_missing() {
        for name in [
            VERSION,
            CONTROLLER_IMAGE,
            IMPORTER_IMAGE,
            CLONER_IMAGE,
            OVIRT_POPULATOR_IMAGE,
            APISERVER_IMAGE,
            UPLOAD_SERVER_IMAGE,
            UPLOAD_PROXY_IMAGE,
        ] {
            assert_eq!(with(name, ""), Err(EnvironmentError::Missing(name)), "{name}");
        }
    }

    #[test]
    fn values_are_parsed_or_rejected() {
        type Check = fn(&OperatorEnvironment) -> bool;
        let table: [(&'static str, &'static str, Option<Check>); 14] = [
            (PULL_POLICY, "Always", Some(|e| e.pull_policy == "Always")),
            (PULL_POLICY, "always", None),
            (VERBOSITY, "3", Some(|e| e.verbosity == 3)),
            (VERBOSITY, "-1", None),
            (VERBOSITY, "11", None),
            (VERBOSITY, "much", None),
            (
                RUNBOOK_URL,
                "https://r.example/%s.md",
                Some(|e| e.runbooks() == "https://r.example/%s.md"),
            ),
            (RUNBOOK_URL, "https://r.example/", None),
            (RUNBOOK_URL, "https://r.example/%s/%s", None),
            (DEPLOY_CLUSTER_RESOURCES, "false", Some(|e| !e.deploys_cluster_resources)),
            (DEPLOY_CLUSTER_RESOURCES, "no", None),
            (MONITORING_NAMESPACE, "m", Some(|e| e.monitoring_namespace.as_deref() == Some("m"))),
            (VIEWERS_MAY_CLONE, "false", Some(|e| e.viewers == Viewers::MayRead)),
            (DUMP_INSTALL_STRATEGY, "true", Some(|e| e.dumps_objects)),
        ];
        for (name, value, expected) in table {
            match (with(name, value), expected) {
                (Ok(Some(environment)), Some(is_right)) => {
                    assert!(is_right(&environment), "{name}={value}");
                }
                (Err(EnvironmentError::Invalid { name: at, .. }), None) => assert_eq!(at, name),
                (got, _) => panic!("{name}={value}: {got:?}"),
            }
        }
    }
}
