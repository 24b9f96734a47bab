//! Installation by the operator: two files with upstream CDI's names, the NetworkPolicies, and a check.

use api::names::{GATE_HONOR_WAIT_FOR_FIRST_CONSUMER, GROUP, VERSION};
use serde_json::{Value, json};

use super::{Settings, crds, namespace, network, operator_deployment, programs, rights};

/// The CRD of the CDI kind, which has to exist before the operator.
pub(super) const OWN_CRD: &str = "cdis.cdi.kubevirt.io";

/// What is applied to start the operator. It installs nothing before there is a CDI object.
pub(super) fn operator(settings: &Settings, version: &str) -> Vec<Value> {
    let mut all = vec![namespace(settings), own_crd()];
    all.extend(rights::installer(settings));
    all.push(operator_deployment(settings, version));
    all
}

/// As the operator keeps it.
pub(super) fn own_crd() -> Value {
    let is_it = |crd: &Value| crd["metadata"]["name"] == OWN_CRD;
    crds().into_iter().find(is_it).expect("the types have the CDI kind")
}

/// The CDI object of a common installation. Upstream CDI's has no strategy, so that its deletion deletes all DataVolumes and their
/// disks without a question.
pub(super) fn installation(settings: &Settings) -> Value {
    let linux = json!({ "nodeSelector": { "kubernetes.io/os": "linux" } });
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "CDI",
        "metadata": { "name": "cdi" },
        "spec": {
            "config": { "featureGates": [GATE_HONOR_WAIT_FOR_FIRST_CONSUMER] },
            "imagePullPolicy": settings.pull_policy,
            "infra": linux,
            "uninstallStrategy": "BlockUninstallIfWorkloadsExist",
            "workload": linux,
        },
    })
}

/// For a namespace that denies all connections before the operator runs. It creates the same ones.
pub(super) fn network_policies(settings: &Settings) -> Vec<Value> {
    network::objects(settings)
}

/// Prints what the operator would change. The namespace is not part of it, so that deleting it deletes nothing else.
pub(super) fn check(settings: &Settings, version: &str) -> Vec<Value> {
    const NAME: &str = "cdi-operator-check";
    let mut all = rights::checker(settings, NAME);
    all.push(programs::operator::check_job(settings, version, NAME));
    all
}
