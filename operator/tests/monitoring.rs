//! What Prometheus watches: that all documented alerts are there, that somebody shows what they look at, and that they come
//! and go with their causes.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::collections::BTreeSet;

use operator::manifests::{Settings, monitoring};
use serde_json::Value;
use testkit::require_tool;

/// Those that the rules of monitoring give names to, and those that it tells people of.
fn rules(member: &str) -> Vec<Value> {
    let rule = monitoring(&Settings::default());
    let rule = rule.into_iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    let all = rule["spec"]["groups"][0]["rules"].as_array().unwrap().clone();
    all.into_iter().filter(|rule| !rule[member].is_null()).collect()
}

#[test]
fn the_documented_alerts_are_watched_for() {
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
fn what_is_watched_is_what_somebody_shows() {
    // Shown by the controllers, and one by the operator; `cluster:` names are given by the rules themselves.
    let shown = [
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
            let is_known = shown.contains(&word) || given.iter().any(|name| name == word);
            assert!(is_known, "nobody shows {word}");
        }
    }
}

#[test]
fn an_alert_is_over_when_its_cause_is() {
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
