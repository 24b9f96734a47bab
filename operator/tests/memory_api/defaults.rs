//! What an API server fills in and drops, for the kinds that the operator installs.

use serde_json::{Value, json};

pub fn fill(object: &mut Value) {
    match object["kind"].as_str().unwrap_or_default() {
        "Deployment" => fill_deployment(object),
        "Service" => fill_service(object),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let is_mutating = object["kind"] == "MutatingWebhookConfiguration";
            for webhook in items(&mut object["webhooks"]) {
                set(webhook, "namespaceSelector", json!({}));
                set(webhook, "objectSelector", json!({}));
                set(webhook, "matchPolicy", "Equivalent".into());
                set(webhook, "failurePolicy", "Fail".into());
                set(webhook, "timeoutSeconds", 10.into());
                if is_mutating {
                    set(webhook, "reinvocationPolicy", "Never".into());
                }
                set(&mut webhook["clientConfig"]["service"], "port", 443.into());
                for rule in items(&mut webhook["rules"]) {
                    set(rule, "scope", "*".into());
                }
            }
        }
        "CustomResourceDefinition" => {
            set(&mut object["spec"], "conversion", json!({ "strategy": "None" }));
            let names = &mut object["spec"]["names"];
            let list = format!("{}List", names["kind"].as_str().unwrap_or_default());
            set(names, "listKind", list.into());
            let storage = object["spec"]["versions"].as_array().into_iter().flatten();
            let storage =
                storage.filter(|one| one["storage"] == true).map(|one| one["name"].clone());
            let storage: Vec<_> = storage.collect();
            if !object["status"].is_object() {
                object["status"] = json!({ "storedVersions": [] });
            }
            let stored = object["status"]["storedVersions"].as_array_mut().unwrap();
            for version in storage {
                if !stored.contains(&version) {
                    stored.push(version);
                }
            }
        }
        "ServiceAccount" => drop_empty(object, &["secrets", "imagePullSecrets"]),
        "NetworkPolicy" => {
            for direction in ["ingress", "egress"] {
                for rule in items(&mut object["spec"][direction]) {
                    for port in items(&mut rule["ports"]) {
                        set(port, "protocol", "TCP".into());
                    }
                    drop_null(rule);
                }
            }
            drop_null(&mut object["spec"]);
        }
        _ => {}
    }
}

fn fill_deployment(object: &mut Value) {
    let spec = &mut object["spec"];
    set(spec, "replicas", 1.into());
    set(spec, "progressDeadlineSeconds", 600.into());
    set(spec, "revisionHistoryLimit", 10.into());
    set(spec, "strategy", json!({ "type": "RollingUpdate" }));
    let pod = &mut spec["template"]["spec"];
    set(pod, "dnsPolicy", "ClusterFirst".into());
    set(pod, "restartPolicy", "Always".into());
    set(pod, "schedulerName", "default-scheduler".into());
    set(pod, "terminationGracePeriodSeconds", 30.into());
    set(pod, "securityContext", json!({}));
    for container in items(&mut pod["containers"]) {
        set(container, "terminationMessagePath", "/dev/termination-log".into());
        set(container, "terminationMessagePolicy", "File".into());
        set(container, "imagePullPolicy", "IfNotPresent".into());
        set(container, "resources", json!({}));
        for port in items(&mut container["ports"]) {
            set(port, "protocol", "TCP".into());
        }
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            if container[probe].is_object() {
                let probe = &mut container[probe];
                set(probe, "timeoutSeconds", 1.into());
                set(probe, "periodSeconds", 10.into());
                set(probe, "successThreshold", 1.into());
                set(probe, "failureThreshold", 3.into());
                if probe["httpGet"].is_object() {
                    set(&mut probe["httpGet"], "scheme", "HTTP".into());
                }
            }
        }
        for variable in items(&mut container["env"]) {
            if variable["valueFrom"]["fieldRef"].is_object() {
                set(&mut variable["valueFrom"]["fieldRef"], "apiVersion", "v1".into());
            }
            drop_null(variable);
        }
        drop_empty(container, &["env", "volumeMounts", "args", "command", "ports"]);
        drop_null(container);
    }
    for volume in items(&mut pod["volumes"]) {
        for source in ["secret", "configMap"] {
            if volume[source].is_object() {
                set(&mut volume[source], "defaultMode", 0o644.into());
            }
        }
        drop_null(volume);
    }
    drop_empty(pod, &["volumes", "imagePullSecrets", "tolerations"]);
    drop_null(pod);
}

fn fill_service(object: &mut Value) {
    let spec = &mut object["spec"];
    set(spec, "type", "ClusterIP".into());
    set(spec, "sessionAffinity", "None".into());
    set(spec, "clusterIP", "10.0.0.1".into());
    set(spec, "internalTrafficPolicy", "Cluster".into());
    for port in items(&mut spec["ports"]) {
        let number = port["port"].clone();
        set(port, "protocol", "TCP".into());
        set(port, "targetPort", number);
    }
}

fn items(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    list.as_array_mut().into_iter().flatten()
}

fn set(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = value;
    }
}

fn drop_empty(object: &mut Value, fields: &[&str]) {
    for field in fields {
        if object[*field].as_array().is_some_and(Vec::is_empty) {
            object.as_object_mut().unwrap().remove(*field);
        }
    }
}

/// Indexing with `[]` to look at a missing field has inserted `null`.
fn drop_null(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
}
