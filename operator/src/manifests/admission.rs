//! Webhook configurations and the APIService. The CA bundle is not
//! part of the manifests: the operator writes it, and updates it.

use api::labels::{APPLY_STORAGE_PROFILE, component};
use api::names::{API_SERVICE as SERVICE, UPLOAD_GROUP, VERSION};
use serde_json::{Value, json};

use super::{Settings, object};

/// The validating webhook configurations.
pub const VALIDATING: [&str; 5] = [
    "cdi-api-dataimportcron-validate",
    "cdi-api-datavolume-validate",
    "cdi-api-populator-validate",
    "cdi-api-validate",
    "objecttransfer-api-validate",
];
/// The mutating webhook configurations.
pub const MUTATING: [&str; 2] = ["cdi-api-datavolume-mutate", PVC_WEBHOOK];
/// Completes PVCs; not installed with `webhookPvcRendering: Disabled`.
pub(crate) const PVC_WEBHOOK: &str = "cdi-api-pvc-mutate";
/// The aggregated API.
pub const API_SERVICE: &str = "v1beta1.upload.cdi.kubevirt.io";

const GROUP: &str = api::names::GROUP;

struct Webhook {
    configuration: &'static str,
    /// Path, and first part of the webhook's name.
    path: &'static str,
    operations: &'static [&'static str],
    group: &'static str,
    version: &'static str,
    resources: &'static [&'static str],
    /// `failurePolicy: Fail`: objects are refused if the webhook cannot be reached.
    fails_closed: bool,
    patience_seconds: u8,
    reviews: &'static [&'static str],
}

impl Webhook {
    const fn about(
        configuration: &'static str,
        path: &'static str,
        resources: &'static [&'static str],
    ) -> Self {
        Self {
            configuration,
            path,
            operations: &["CREATE", "UPDATE"],
            group: GROUP,
            version: VERSION,
            resources,
            fails_closed: true,
            patience_seconds: 30,
            reviews: &["v1", "v1beta1"],
        }
    }

    fn value(&self, settings: &Settings) -> Value {
        let service = json!({
            "namespace": settings.namespace,
            "name": SERVICE,
            "path": format!("/{}", self.path),
            "port": 443,
        });
        let rule = json!({
            "apiGroups": [self.group],
            "apiVersions": [self.version],
            "operations": self.operations,
            "resources": self.resources,
            "scope": "*",
        });
        json!({
            "name": format!("{}.{GROUP}", self.path),
            "admissionReviewVersions": self.reviews,
            "clientConfig": { "service": service },
            "failurePolicy": if self.fails_closed { "Fail" } else { "Ignore" },
            "matchPolicy": "Exact",
            "namespaceSelector": {},
            "objectSelector": {},
            "rules": [rule],
            "sideEffects": "None",
            "timeoutSeconds": self.patience_seconds,
        })
    }
}

fn validating() -> [Webhook; 5] {
    [
        Webhook::about(VALIDATING[0], "dataimportcron-validate", &["dataimportcrons"]),
        Webhook::about(VALIDATING[1], "datavolume-validate", &["datavolumes"]),
        Webhook::about(
            VALIDATING[2],
            "populator-validate",
            &["volumeimportsources", "volumeuploadsources"],
        ),
        Webhook {
            operations: &["DELETE"],
            fails_closed: false,
            ..Webhook::about(VALIDATING[3], "cdi-validate", &["cdis"])
        },
        Webhook::about(VALIDATING[4], "objecttransfer-validate", &["objecttransfers"]),
    ]
}

fn mutating() -> [Webhook; 2] {
    [
        Webhook::about(MUTATING[0], "datavolume-mutate", &["datavolumes"]),
        Webhook {
            operations: &["CREATE"],
            group: "",
            version: "v1",
            patience_seconds: 10,
            reviews: &["v1"],
            ..Webhook::about(MUTATING[1], "pvc-mutate", &["persistentvolumeclaims"])
        },
    ]
}

pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let configuration = |kind: &str, name: &str, webhook: Value| {
        let rest = json!({ "webhooks": [webhook] });
        object("admissionregistration.k8s.io/v1", kind, name, None, component::API, rest)
    };
    let mut all = vec![api_service(settings)];
    for webhook in validating() {
        let value = webhook.value(settings);
        all.push(configuration("ValidatingWebhookConfiguration", webhook.configuration, value));
    }
    for webhook in mutating() {
        let mut value = webhook.value(settings);
        value["reinvocationPolicy"] = "Never".into();
        if webhook.group.is_empty() {
            let labelled = json!({ "matchLabels": { APPLY_STORAGE_PROFILE: "true" } });
            value["objectSelector"] = labelled;
        }
        all.push(configuration("MutatingWebhookConfiguration", webhook.configuration, value));
    }
    all
}

fn api_service(settings: &Settings) -> Value {
    let spec = json!({
        "group": UPLOAD_GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
        "service": { "namespace": settings.namespace, "name": SERVICE, "port": 443 },
    });
    let rest = json!({ "spec": spec });
    object("apiregistration.k8s.io/v1", "APIService", API_SERVICE, None, component::API, rest)
}
