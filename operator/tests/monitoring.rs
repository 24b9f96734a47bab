//! Prometheus rules: all documented alerts have rules, programs expose the metrics of the rules, and alerts fire and clear
//! with their causes.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::collections::BTreeSet;

use operator::manifests::{Settings, monitoring, objects};
use serde_json::Value;
use testkit::require_tool;

/// Recording rules (`member` is "record") or alerts ("alert").
fn rules(member: &str) -> Vec<Value> {
    let rule = monitoring(&Settings::default());
    let rule = rule.into_iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    let all = rule["spec"]["groups"][0]["rules"].as_array().unwrap().clone();
    all.into_iter().filter(|rule| !rule[member].is_null()).collect()
}

#[test]
fn documented_alerts_have_rules() {
    let names: BTreeSet<_> =
        rules("alert").iter().map(|alert| alert["alert"].as_str().unwrap().to_owned()).collect();
    let documented = [
        "CDIDataImportCronOutdated",
        "CDIDataVolumeUnusualRestartCount",
        "CDIDefaultStorageClassDegraded",
        "CDIMultipleDefaultVirtStorageClasses",
        "CDINoDefaultStorageClass",
        "CDINotReady",
        "CDIOperatorDown",
        "CDIStorageProfilesIncomplete",
    ];
    assert_eq!(names, documented.map(str::to_owned).into());
    for alert in rules("alert") {
        let url = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert!(url.ends_with(alert["alert"].as_str().unwrap()), "{url}");
    }
}

#[test]
fn every_metric_of_the_rules_is_exposed_by_a_program() {
    // Shown by the controllers, and one by the operator; `cluster:` names are given by the rules themselves.
    let metrics_state = [
        "kubevirt_cdi_cr_ready",
        "kubevirt_cdi_datavolume_pending",
        "kubevirt_cdi_dataimportcron_outdated",
        "kubevirt_cdi_storageprofile_info",
    ];
    let given: Vec<_> =
        rules("record").iter().map(|rule| rule["record"].as_str().unwrap().to_owned()).collect();
    for alert in rules("alert") {
        let expression = alert["expr"].as_str().unwrap();
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        for word in
            expression.split(|c| !is_of_name(c)).filter(|word| word.contains("kubevirt_cdi"))
        {
            let is_known = metrics_state.contains(&word) || given.iter().any(|name| name == word);
            assert!(is_known, "no program exposes {word}");
        }
    }
}

/// Whether each of these labels is there.
fn has(labels: &Value, desired: &Value) -> bool {
    desired.as_object().unwrap().iter().all(|(key, value)| &labels[key] == value)
}

/// The only object of a kind among those of monitoring.
fn of_monitoring(kind: &str) -> Value {
    let all = monitoring(&Settings::default());
    all.into_iter().find(|object| object["kind"] == kind).unwrap()
}

#[test]
fn programs_whose_absence_alerts_are_scraped() {
    let installed: Vec<Value> =
        objects(&Settings::default()).into_iter().flat_map(|(_, objects)| objects).collect();
    let of_kind = |kind: &str| {
        let of_kind = installed.iter().filter(|object| object["kind"] == kind);
        of_kind.cloned().collect::<Vec<_>>()
    };
    let monitor = &of_monitoring("ServiceMonitor")["spec"];
    let desired = &monitor["selector"]["matchLabels"];
    let services: Vec<_> = of_kind("Service")
        .into_iter()
        .filter(|service| has(&service["metadata"]["labels"], desired))
        .collect();
    assert!(
        services.iter().all(|service| {
            service["spec"]["ports"][0]["name"] == monitor["endpoints"][0]["port"]
        })
    );
    let mut judged = 0;
    for rule in rules("expr") {
        let expression = rule["expr"].as_str().unwrap();
        for part in expression.split("up{").skip(1).filter(|part| part.starts_with("namespace=")) {
            // The pods of a Deployment begin with its name.
            let (_, pods) = part.split_once("pod=~'").unwrap();
            let program = pods.split_once("-.*'").unwrap().0;
            let deployments = of_kind("Deployment");
            let deployment =
                deployments.iter().find(|one| one["metadata"]["name"] == program).unwrap();
            let template = &deployment["spec"]["template"];
            let labels = &template["metadata"]["labels"];
            let is_asked = |service: &Value| has(labels, &service["spec"]["selector"]);
            assert!(services.iter().any(is_asked), "no ServiceMonitor scrapes {program}");
            let port = &template["spec"]["containers"][0]["ports"][0];
            assert_eq!(port["name"], "metrics", "{program}");
            judged += 1;
        }
    }
    assert_eq!(judged, 2, "of the operator, by two names");
}

#[test]
fn scrapes_use_the_token_of_an_account_that_can_read_metrics() {
    let monitor = of_monitoring("ServiceMonitor");
    let token = of_monitoring("Secret");
    let credentials = &monitor["spec"]["endpoints"][0]["authorization"]["credentials"];
    assert_eq!(credentials["name"], token["metadata"]["name"]);
    assert_eq!(credentials["key"], "token");
    assert_eq!(token["type"], "kubernetes.io/service-account-token");
    let account = &token["metadata"]["annotations"]["kubernetes.io/service-account.name"];
    let installed: Vec<Value> =
        objects(&Settings::default()).into_iter().flat_map(|(_, objects)| objects).collect();
    let binding = installed.iter().find(|object| {
        object["kind"] == "ClusterRoleBinding" && &object["subjects"][0]["name"] == account
    });
    let role = &binding.unwrap()["roleRef"]["name"];
    let role = installed
        .iter()
        .find(|object| object["kind"] == "ClusterRole" && &object["metadata"]["name"] == role);
    let rule = &role.unwrap()["rules"][0];
    assert_eq!(rule["nonResourceURLs"][0], "/metrics");
    assert_eq!(rule["verbs"][0], "get");
}

#[test]
fn alert_fires_and_clears_with_its_cause() {
    let Some(promtool) = require_tool("promtool") else { return };
    let folder = tempfile::tempdir().unwrap();
    let rule = monitoring(&Settings::default());
    let rule = rule.into_iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    std::fs::write(folder.path().join("rules.yaml"), rule["spec"].to_string()).unwrap();
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alerts.yaml");
    let tests = folder.path().join("alerts.yaml");
    std::fs::copy(cases, &tests).unwrap();
    promtool.run(["test".as_ref(), "rules".as_ref(), tests.as_os_str()]);
}
