//! The objects that the controller creates for the DataImportCrons in `docs/examples`, with the pods and Jobs that poll
//! for newer images.

use api::annotations::cron as key;
use api::v1beta1::{CdiConfig, DataImportCron};
use controller_core::data_import_cron::{self as crons, Change, NamespaceObjects, PollFrom, jobs};
use controller_core::meta::{self, Installation};
use controller_core::worker::Image;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{example, read, with_kind};

const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// All objects of a cron whose image is known, with those that poll for it.
fn objects_of(mut cron: DataImportCron) -> Vec<Value> {
    cron.metadata.uid = Some("11111111-1111-1111-1111-111111111111".into());
    cron.metadata
        .annotations
        .get_or_insert_default()
        .insert(key::DESIRED_DIGEST.into(), DIGEST.into());
    let installation = Installation {
        namespace: "cdi".into(),
        part_of: Some("hyperconverged-cluster".into()),
        version: None,
    };
    let now: Timestamp = "2026-11-21T20:00:00Z".parse().unwrap();
    let plan = crons::plan(
        &crons::Facts {
            cron: &cron,
            manager: None,
            classes: &[],
            profiles: &[],
            snapshot_classes: &[],
            all: NamespaceObjects { volumes: &[], claims: &[], snapshots: &[], sources: &[] },
            poll_from: PollFrom::Controller,
            polled: None,
            may_clone: false,
            installation: &installation,
        },
        now,
    );
    let mut objects = Vec::new();
    for change in &plan.changes {
        objects.push(match change {
            Change::CreateVolume(volume) => serde_json::to_value(volume).unwrap(),
            Change::CreateSource(source) => serde_json::to_value(source).unwrap(),
            other => panic!("{other:?}"),
        });
    }
    objects.push(json!({ "status": plan.status, "annotations": plan.annotations.0 }));

    let config: CdiConfig = read(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig", "metadata": { "name": "config" },
        "spec": { "insecureRegistries": ["quay.io"] },
        "status": {
            "importProxy": { "HTTPSProxy": "http://proxy.example:3128", "noProxy": ".svc", "trustedCAProxy": "proxy-ca" },
            "imagePullSecrets": [{ "name": "pull" }],
        },
    }));
    let image = Image { importer: "cdi-importer".into(), verbosity: 1, ..Image::default() };
    let cdi = read(json!({ "name": "cdi", "uid": "22222222-2222-2222-2222-222222222222" }));
    let owner = meta::owned_by("cdi.kubevirt.io/v1beta1", "CDI", &cdi);
    let facts = jobs::Facts {
        cron: &cron,
        config: Some(&config),
        placement: None,
        image: &image,
        installation: &installation,
        owner: Some(&owner),
        networks: &jobs::PollNetworks::default(),
    };
    if let jobs::Plan::Poll { cron_job, first } = jobs::plan(&facts, PollFrom::Jobs) {
        objects.push(with_kind("batch/v1", "CronJob", serde_json::to_value(cron_job).unwrap()));
        let name = first.metadata.name;
        objects
            .push(json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name } }));
    } else if let Some(pod) = jobs::node_pod(&facts) {
        objects.push(with_kind("v1", "Pod", serde_json::to_value(pod).unwrap()));
    }
    objects
}

#[test]
fn objects_of_the_example_crons_match_the_reviewed_files() {
    let created = |name: &str| {
        let crons = example(name).into_iter().filter(|object| object["kind"] == "DataImportCron");
        crons.flat_map(|object| objects_of(read(object))).collect()
    };
    let count = crate::compare("crons", created);
    assert!(count >= 3, "{count}");
}
