//! Rules and monitors for Prometheus' operator. Only its clusters have these kinds, so they
//! are not part of the installation itself.

use api::labels;
use serde_json::{Value, json};

use super::{Settings, object};

/// The runbooks of upstream's alerts.
const RUNBOOKS: &str = "https://kubevirt.io/monitoring/runbooks";
/// Group and version of Prometheus' operator.
const MONITORING: &str = "monitoring.coreos.com/v1";
/// Service account and namespace of Prometheus, as its operator is usually installed.
pub(super) const READER: (&str, &str) = ("prometheus-k8s", "monitoring");

/// The service account whose token Prometheus uses.
const ACCOUNT: &str = "cdi-metrics-reader";
/// The Secret of its token, which the cluster fills.
const TOKEN: &str = "cdi-metrics-reader-token";

/// An alert, which fires once its expression has held for a while.
struct Alert {
    name: &'static str,
    expression: String,
    lasts: &'static str,
    severity: &'static str,
    health: &'static str,
    summary: &'static str,
}

/// Rules, the ServiceMonitor with its token, and the permission to discover endpoints.
pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let place = Some(settings.namespace.as_str());
    let role = json!({ "rules": [{
        "apiGroups": [""], "resources": ["services", "endpoints", "pods"],
        "verbs": ["get", "list", "watch"],
    }] });
    let (account, namespace) = READER;
    let binding = json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "cdi-monitoring" },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
    });
    let rbac_v1 = "rbac.authorization.k8s.io/v1";
    let token = json!({ "type": "kubernetes.io/service-account-token" });
    let mut token = object("v1", "Secret", TOKEN, place, "", token);
    token["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": ACCOUNT });
    let rules =
        json!({ "spec": { "groups": [{ "name": "cdi.rules", "rules": rules(settings) }] } });
    let monitor = json!({ "spec": {
        "selector": { "matchLabels": { labels::PROMETHEUS: "true" } },
        "namespaceSelector": { "matchNames": [settings.namespace] },
        "endpoints": [{
            "port": "metrics", "scheme": "https", "tlsConfig": { "insecureSkipVerify": true },
            "authorization": { "credentials": { "name": TOKEN, "key": "token" } },
        }],
    } });
    let mut all = vec![
        object(rbac_v1, "Role", "cdi-monitoring", place, "", role),
        object(rbac_v1, "RoleBinding", "cdi-monitoring", place, "", binding),
        token,
        object(MONITORING, "PrometheusRule", "prometheus-cdi-rules", place, "", rules),
        object(MONITORING, "ServiceMonitor", "service-monitor-cdi", place, "", monitor),
    ];
    for watched in &mut all[3..] {
        watched["metadata"]["labels"][labels::PROMETHEUS] = "true".into();
    }
    all[4]["metadata"]["labels"]["openshift.io/cluster-monitoring"] = "".into();
    all
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
            "annotations": { "summary": summary, "runbook_url": format!("{RUNBOOKS}/{name}") },
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
