//! Pods as workers are, and the network between them.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{PodPlan, Test, run};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Secret, Service};
use serde_json::json;

/// A service in front of the pod of the same name.
pub async fn service(test: &Test, name: &str, port: u16, target: u16) -> Result<Service> {
    test.create(json!({
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port, "targetPort": target}]},
    }))
    .await
}

/// A Secret with a certificate for the service of that name, and the CA that signed it.
pub async fn certificate(test: &Test, service: &str) -> Result<cluster::Certificate> {
    let name = format!("DNS:{service}.{}.svc", test.namespace());
    let made = cluster::certificate(test.state(), test.namespace(), &[&name])?;
    test.create::<Secret>(json!({
        "metadata": {"name": service},
        "type": "kubernetes.io/tls",
        "stringData": {
            "tls.crt": made.certificate, "tls.key": made.key, "ca.crt": made.authority,
        },
    }))
    .await?;
    Ok(made)
}

#[test]
fn pod_runs_as_user_107_without_capabilities() {
    run("pod-rights", async |test| {
        let output = PodPlan::new("who", &["identity"]).output(&test).await?;
        ensure!(
            output == "uid=107 gid=107 root=read-only capabilities=0000000000000000",
            "{output}"
        );
        Ok(())
    });
}

#[test]
fn pod_beyond_the_restricted_profile_is_refused() {
    run("pod-refused", async |test| {
        let object = json!({
            "metadata": {"name": "root"},
            "spec": {"containers": [{"name": "main", "image": "cdi.test/testpod:1"}]},
        });
        let error = test.create::<Pod>(object).await.expect_err("the profile is enforced");
        ensure!(format!("{error:#}").contains("violates PodSecurity"), "{error:#}");
        Ok(())
    });
}

#[test]
fn pod_reaches_a_service_by_name() {
    run("service", async |test| {
        service(&test, "greeter", 80, 8080).await?;
        PodPlan::new("greeter", &["serve", "good", "day"]).start(&test).await?;
        for (asker, url) in [("near", "http://greeter"), ("far", "http://greeter.TEST.svc")] {
            let url = url.replace("TEST", test.namespace());
            let output = PodPlan::new(asker, &["get", &url]).output(&test).await?;
            ensure!(output == "good day", "{url}: {output}");
        }
        Ok(())
    });
}

#[test]
fn pods_use_tls_with_the_services_certificate() {
    run("tls", async |test| {
        service(&test, "greeter", 443, 8443).await?;
        certificate(&test, "greeter").await?;
        PodPlan::new("greeter", &["serve", "in", "private"]).tls("greeter").start(&test).await?;
        let url = format!("https://greeter.{}.svc", test.namespace());
        let output = PodPlan::new("asker", &["get", &url]).tls("greeter").output(&test).await?;
        ensure!(output == "in private", "{output}");
        Ok(())
    });
}

#[test]
fn loaded_image_runs() {
    run("image", async |test| {
        let reference = format!("cdi.test/{}:1", test.namespace());
        let program = cluster::Tools::ready(&[cluster::NODE])?.path("testpod")?;
        cluster::load_program(test.state(), program.as_ref(), &reference)?;
        let output = PodPlan::new("loaded", &["identity"]).image(&reference).output(&test).await?;
        ensure!(output.starts_with("uid=107"), "{output}");
        Ok(())
    });
}

#[test]
fn quota_refuses_excess_objects() {
    run("quota", async |test| {
        test.create::<ResourceQuota>(json!({
            "metadata": {"name": "one"}, "spec": {"hard": {"pods": "1"}},
        }))
        .await?;
        let known = |quota: &ResourceQuota| quota.status.as_ref().is_some_and(|s| s.used.is_some());
        test.wait("one", "counted", known).await?;
        // The admission plugin observes it a moment later than this test.
        tokio::time::sleep(Duration::from_secs(2)).await;
        PodPlan::new("first", &["pause"]).make(&test).await?;
        let error = PodPlan::new("second", &["pause"]).make(&test).await;
        let error = error.expect_err("one pod is the limit");
        ensure!(format!("{error:#}").contains("exceeded quota"), "{error:#}");
        Ok(())
    });
}
