//! What extends the API server: aggregated groups and webhooks, both served by pods.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{PodPlan, run};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::Api;
use serde_json::{Value, json};

use crate::pods::{certificate, service};

/// A certificate as in the API: PEM in base64, as `ByteString` is serialized.
fn encoded(pem: &str) -> Result<Value> {
    Ok(serde_json::to_value(ByteString(pem.as_bytes().to_vec()))?)
}

#[test]
fn aggregated_api_in_a_pod_receives_the_user() {
    run("aggregated", async |test| {
        let group = format!("{}.cdi.test", test.namespace());
        service(&test, "extension", 443, 8443).await?;
        let made = certificate(&test, "extension").await?;
        PodPlan::new("extension", &["aggregated", &group]).tls("extension").start(&test).await?;
        let name = format!("v1.{group}");
        test.create_global::<APIService>(json!({
            "metadata": {"name": name},
            "spec": {
                "group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
                "service": {"namespace": test.namespace(), "name": "extension"},
                "caBundle": encoded(&made.authority)?,
            },
        }))
        .await?;
        let outcome = async {
            let services = Api::<APIService>::all(test.client());
            test.wait_among(&services, &name, "available", |service| {
                let status = service.status.as_ref();
                let mut conditions =
                    status.and_then(|s| s.conditions.as_ref()).into_iter().flatten();
                conditions.any(|c| c.type_ == "Available" && c.status == "True")
            })
            .await?;
            let path = format!("/apis/{group}/v1/greetings/hello");
            // The API server's proxy observes the endpoint a moment later than this test.
            let mut moments = 0;
            let answer: Value = loop {
                match test.client().request(http_get(&path)?).await {
                    Err(kube::Error::Api(status)) if status.code == 503 && moments < 600 => {
                        moments += 1;
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    answer => break answer?,
                }
            };
            ensure!(answer["user"] == "admin", "{answer}");
            Ok(())
        }
        .await;
        // If it remained, every later discovery and every deletion of a namespace would fail.
        test.remove_global::<APIService>(&name).await?;
        outcome
    });
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).context("a plain request")
}

#[test]
fn webhook_in_a_pod_refuses_an_object_with_its_message() {
    run("webhook", async |test| {
        service(&test, "hook", 443, 8443).await?;
        let made = certificate(&test, "hook").await?;
        PodPlan::new("hook", &["webhook", "not", "today"]).tls("hook").start(&test).await?;
        let name = test.namespace().to_owned();
        test.create_global::<ValidatingWebhookConfiguration>(json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": "refuse.cdi.test",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"],
                    "resources": ["configmaps"], "operations": ["CREATE"],
                }],
                "clientConfig": {
                    "service": {"namespace": name, "name": "hook"},
                    "caBundle": encoded(&made.authority)?,
                },
            }],
        }))
        .await?;
        let outcome = async {
            // The API server observes a webhook a moment after it was created, and the node the service's address.
            for attempt in 0..600 {
                let object = json!({"metadata": {"name": format!("map-{attempt}")}});
                let answer = test.create::<ConfigMap>(object).await.map_err(|e| format!("{e:#}"));
                match answer {
                    Err(words) if words.contains("not today") => return Ok(()),
                    Err(words) => ensure!(words.contains("failed to call webhook"), "{words}"),
                    Ok(_) => {}
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            anyhow::bail!("the webhook got no request")
        }
        .await;
        test.remove_global::<ValidatingWebhookConfiguration>(&name).await?;
        outcome
    });
}
