use serde_json::{Value, json};

use super::*;

fn cron(source: Value) -> DataImportCron {
    serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": { "name": "fedora-cron", "namespace": "images", "uid": "0a1b2c3d-0a1b" },
        "spec": {
            "schedule": "55 8/12 * * *", "managedDataSource": "fedora", "template": { "spec": { "source": source } },
        },
    }))
    .unwrap()
}

fn planned(cron: &DataImportCron, from: PollFrom) -> Plan {
    planned_with(cron, from, &PollNetworks::default())
}

fn planned_with(cron: &DataImportCron, from: PollFrom, networks: &PollNetworks) -> Plan {
    let (image, installation) = (
        Image { importer: "importer:1".into(), ..Image::default() },
        Installation { namespace: "cdi".into(), ..Installation::default() },
    );
    let facts = Facts {
        cron,
        config: None,
        placement: None,
        image: &image,
        installation: &installation,
        owner: None,
        networks,
    };
    plan(&facts, from)
}

#[test]
fn only_registries_polled_by_jobs_have_a_cron_job() {
    let url = json!({ "registry": { "url": "docker://r/i" } });
    assert!(matches!(planned(&cron(url.clone()), PollFrom::Jobs), Plan::Poll { .. }));
    assert_eq!(planned(&cron(url.clone()), PollFrom::Controller), Plan::Nothing);
    for source in [
        json!({ "registry": { "url": "docker://r/i", "pullMethod": "node" } }),
        json!({ "registry": { "imageStream": "s", "pullMethod": "node" } }),
        json!({ "pvc": { "namespace": "a", "name": "b" } }),
        json!({ "http": { "url": "http://h/a" } }),
    ] {
        assert_eq!(planned(&cron(source.clone()), PollFrom::Jobs), Plan::Nothing, "{source}");
    }
    let mut never = cron(url.clone());
    never.spec.schedule.clear();
    assert_eq!(planned(&never, PollFrom::Jobs), Plan::Nothing);
    let mut deleted = cron(url);
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-11-21T20:00:00Z")).unwrap();
    assert_eq!(planned(&deleted, PollFrom::Jobs), Plan::Nothing);
}

#[test]
fn a_job_is_named_after_its_cron_and_found_by_its_labels() {
    let cron = cron(json!({ "registry": { "url": "docker://r/i", "certConfigMap": "ca" } }));
    let Plan::Poll { cron_job, first } = planned(&cron, PollFrom::Jobs) else { panic!("none") };
    assert_eq!(cron_job.metadata.name.as_deref(), Some("fedora-cron-0a1b2c3d"));
    assert_eq!(first.metadata.name.as_deref(), Some("initial-job-fedora-cron-0a1b2c3d"));
    for metadata in [&cron_job.metadata, &first.metadata] {
        assert_eq!(metadata.namespace.as_deref(), Some("cdi"));
        for (key, value) in selector(&cron) {
            assert_eq!(meta::label(metadata, &key), Some(value.as_str()));
        }
    }
    let spec = cron_job.spec.job_template.spec.unwrap().template.spec.unwrap();
    assert_eq!(
        spec.containers[0].command.as_ref().unwrap().join(" "),
        "/usr/bin/cdi-source-update-poller -ns images -cron fedora-cron -url docker://r/i -certdir /certs"
    );
    let networks =
        PollNetworks { denied: "10.96.0.0/12,fd00::/8".into(), allowed: "10.98.0.2/32".into() };
    let Plan::Poll { cron_job, .. } = planned_with(&cron, PollFrom::Jobs, &networks) else {
        panic!("none")
    };
    let spec = cron_job.spec.job_template.spec.unwrap().template.spec.unwrap();
    let command = spec.containers[0].command.as_ref().unwrap().join(" ");
    let networks = "-poll-deny-cidrs 10.96.0.0/12,fd00::/8 -poll-allow-cidrs 10.98.0.2/32";
    assert!(command.ends_with(networks), "{command}");
}

#[test]
fn pull_result_is_the_digest_or_the_reason_of_the_failure() {
    let pod = |statuses: Value| -> Pod {
        serde_json::from_value(json!({ "status": { "containerStatuses": statuses } })).unwrap()
    };
    let status = |id: &str, waiting: Option<&str>| {
        json!([{
            "name": "image-container", "image": "r/i", "imageID": id, "ready": false, "restartCount": 0,
            "state": waiting.map(|reason| json!({ "waiting": { "reason": reason, "message": "at 20:00" } })),
        }])
    };
    assert_eq!(pulled_digest(&Pod::default()), None);
    assert_eq!(pulled_digest(&pod(status("", Some("ContainerCreating")))), None);
    for id in ["r/i@sha256:12", "docker-pullable://r/i@sha256:12", "sha256:12"] {
        assert_eq!(pulled_digest(&pod(status(id, None))), Some(Ok("sha256:12".into())), "{id}");
    }
    let result = pulled_digest(&pod(status("", Some("ImagePullBackOff"))));
    assert_eq!(result, Some(Err("the node cannot pull the image r/i (ImagePullBackOff)".into())));
}

fn config() -> CdiConfig {
    serde_json::from_value(json!({
        "apiVersion": "v", "kind": "k", "metadata": { "name": "config" },
        "spec": { "insecureRegistries": ["host:5000"] },
        "status": { "importProxy": { "HTTPSProxy": "http://proxy:1", "noProxy": ".local" } },
    }))
    .unwrap()
}

#[test]
fn a_registry_is_insecure_only_if_it_is_listed_as_it_is_written() {
    let config = config();
    for (url, expected) in [
        ("docker://host:5000/a", true),
        ("docker://host/a", false),
        ("docker://host:5001/a", false),
        ("host:5000/a", false),
        ("", false),
    ] {
        assert_eq!(is_insecure(url, Some(&config)), expected, "{url}");
        assert!(!is_insecure(url, None));
    }
}
