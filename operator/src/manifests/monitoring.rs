//! Rules and monitors for Prometheus' operator. Only its clusters have these kinds, so they
//! are not part of the installation itself.

use api::labels;
use serde_json::{Value, json};

use super::{Settings, object};

/// Group and version of Prometheus' operator.
const MONITORING: &str = "monitoring.coreos.com/v1";
/// Service account of Prometheus, as its operator is usually installed.
const READER: &str = "prometheus-k8s";

/// Allows Prometheus to discover endpoints.
pub(super) const ROLE: &str = "cdi-monitoring";
/// The service account whose token Prometheus uses.
const ACCOUNT: &str = "cdi-metrics-reader";
/// The Secret of its token, which the cluster fills.
pub(super) const TOKEN: &str = "cdi-metrics-reader-token";

/// An alert, which fires once its expression has held for a while.
struct Alert {
    name: &'static str,
    expression: String,
    lasts: &'static str,
    severity: &'static str,
    health: &'static str,
    summary: &'static str,
}

/// The token by which Prometheus reads metrics, and the permission to discover endpoints.
pub(super) fn access(settings: &Settings) -> Vec<Value> {
    let place = Some(settings.namespace.as_str());
    let role = json!({ "rules": [{
        "apiGroups": [""], "resources": ["services", "endpoints", "pods"],
        "verbs": ["get", "list", "watch"],
    }] });
    let binding = json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ROLE },
        "subjects": [{
            "kind": "ServiceAccount", "name": READER, "namespace": settings.monitoring_namespace,
        }],
    });
    let rbac_v1 = "rbac.authorization.k8s.io/v1";
    let token = json!({ "type": "kubernetes.io/service-account-token" });
    let mut token = object("v1", "Secret", TOKEN, place, "", token);
    token["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": ACCOUNT });
    vec![
        object(rbac_v1, "Role", ROLE, place, "", role),
        object(rbac_v1, "RoleBinding", ROLE, place, "", binding),
        token,
    ]
}

pub(super) fn rule(settings: &Settings) -> Value {
    let spec = json!({ "groups": [{ "name": "cdi.rules", "rules": rules(settings) }] });
    watched(settings, "PrometheusRule", "prometheus-cdi-rules", spec)
}

pub(super) fn monitor(settings: &Settings) -> Value {
    let spec = json!({
        "selector": { "matchLabels": { labels::PROMETHEUS: "true" } },
        "namespaceSelector": { "matchNames": [settings.namespace] },
        "endpoints": [{
            "port": "metrics", "scheme": "https", "tlsConfig": { "insecureSkipVerify": true },
            "authorization": { "credentials": { "name": TOKEN, "key": "token" } },
        }],
    });
    let mut monitor = watched(settings, "ServiceMonitor", "service-monitor-cdi", spec);
    monitor["metadata"]["labels"]["openshift.io/cluster-monitoring"] = "".into();
    monitor
}

/// An object that Prometheus' operator selects by its label.
fn watched(settings: &Settings, kind: &str, name: &str, spec: Value) -> Value {
    let namespace = Some(settings.namespace.as_str());
    let mut object = object(MONITORING, kind, name, namespace, "", json!({ "spec": spec }));
    object["metadata"]["labels"][labels::PROMETHEUS] = "true".into();
    object
}

/// Recording rules with upstream CDI's names, which dashboards use.
fn records(settings: &Settings) -> Vec<(&'static str, String)> {
    let restarts = |pod: &str, container: &str| {
        format!(
            "count(kube_pod_container_status_restarts_total{{pod=~'{pod}', container='{container}'}} > 3) or on() \
             vector(0)"
        )
    };
    let namespace = &settings.namespace;
    let up = format!("sum(up{{namespace='{namespace}', pod=~'cdi-operator-.*'}} or vector(0))");
    let import = restarts("importer-.*", "importer");
    let upload = restarts("cdi-upload-.*", "cdi-upload-server");
    let clone = restarts(".*-source-pod", labels::component::CLONE_SOURCE);
    // Each has a shorter name, too, which older dashboards use.
    vec![
        ("cluster:kubevirt_cdi_operator_up:sum", up.clone()),
        ("kubevirt_cdi_operator_up", up),
        ("cluster:kubevirt_cdi_import_pods_high_restart:count", import.clone()),
        ("kubevirt_cdi_import_pods_high_restart", import),
        ("cluster:kubevirt_cdi_upload_pods_high_restart:count", upload.clone()),
        ("kubevirt_cdi_upload_pods_high_restart", upload),
        ("cluster:kubevirt_cdi_clone_pods_high_restart:count", clone.clone()),
        ("kubevirt_cdi_clone_pods_high_restart", clone),
    ]
}

fn rules(settings: &Settings) -> Vec<Value> {
    let records = records(settings).into_iter();
    let records = records.map(|(name, expression)| json!({ "record": name, "expr": expression }));
    let alerts = alerts().into_iter().map(|alert| {
        let Alert { name, expression, lasts, severity, health, summary } = alert;
        json!({
            "alert": name, "expr": expression, "for": lasts,
            "labels": {
                "severity": severity, "operator_health_impact": health,
                "kubernetes_operator_part_of": "kubevirt",
                "kubernetes_operator_component": "containerized-data-importer",
            },
            "annotations": {
                "summary": summary, "runbook_url": settings.runbook_url_template.replace("%s", name),
            },
        })
    });
    records.chain(alerts).collect()
}

fn alerts() -> Vec<Alert> {
    let warning = |name, expression, lasts, summary| Alert {
        name,
        expression,
        lasts,
        severity: "warning",
        health: "none",
        summary,
    };
    let critical = |name, expression: &str, summary| Alert {
        name,
        expression: expression.into(),
        lasts: "10m",
        severity: "critical",
        health: "critical",
        summary,
    };
    let high_restart = ["import", "upload", "clone"]
        .map(|worker| format!("cluster:kubevirt_cdi_{worker}_pods_high_restart:count > 0"));
    vec![
        critical(
            "CDIOperatorDown",
            "cluster:kubevirt_cdi_operator_up:sum == 0",
            "The CDI operator is down",
        ),
        critical("CDINotReady", "kubevirt_cdi_cr_ready == 0", "CDI is not available to use"),
        warning(
            "CDIDataVolumeUnusualRestartCount",
            high_restart.join(" or "),
            "5m",
            "Workers of some DataVolumes restart repeatedly and will not succeed",
        ),
        Alert {
            severity: "info",
            ..warning(
                "CDIStorageProfilesIncomplete",
                "sum by(storageclass,provisioner) ((kubevirt_cdi_storageprofile_info{complete=\"false\"}>0))"
                    .into(),
                "5m",
                "The StorageProfile of {{ $labels.storageclass }} has neither volumeMode nor accessModes, which cannot \
                 be inferred",
            )
        },
        warning(
            "CDIDataImportCronOutdated",
            "sum by(namespace,cron_name) (kubevirt_cdi_dataimportcron_outdated{pending=\"false\"}) > 0".into(),
            "15m",
            "The DataImportCron {{ $labels.namespace }}/{{ $labels.cron_name }} does not have its newest image",
        ),
        warning(
            "CDINoDefaultStorageClass",
            format!(
                "{} + {} + (count(kubevirt_cdi_datavolume_pending == 0) or on() vector(0)) == 0",
                marked("default"),
                marked("virtdefault")
            ),
            "5m",
            "DataVolumes wait for a default StorageClass, and there is none",
        ),
        warning(
            "CDIMultipleDefaultVirtStorageClasses",
            format!("{} > 1", marked("virtdefault")),
            "5m",
            "More than one StorageClass is the default of virtualization",
        ),
        warning(
            "CDIDefaultStorageClassDegraded",
            degraded(),
            "5m",
            "The default StorageClass offers neither fast clones nor ReadWriteMany",
        ),
    ]
}

/// Number of classes with this label.
fn marked(mark: &str) -> String {
    format!("sum(kubevirt_cdi_storageprofile_info{{{mark}=\"true\"}} or on() vector(0))")
}

/// The class that would be used: the default for virtualization if one exists, else the platform's.
fn degraded() -> String {
    let count = |labels: &str| format!("count(kubevirt_cdi_storageprofile_info{{{labels}}})");
    let without_good = |mark: &str| {
        let (all, good) = (
            count(&format!("{mark}=\"true\"")),
            count(&format!("{mark}=\"true\",degraded=\"false\"")),
        );
        format!("({all} unless on() {good})")
    };
    let virt = without_good("virtdefault");
    let platform = without_good("default");
    format!("{virt} or on() ({platform} unless on() {})", count("virtdefault=\"true\""))
}
