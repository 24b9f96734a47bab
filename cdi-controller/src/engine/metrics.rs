//! What monitoring reads of the controllers.

use std::fmt::Write;
use std::sync::Arc;

use api::v1beta1::{DataVolume, StorageProfile};

use crate::engine::Engine;
use crate::engine::index::Term;
use controller_core::classes;
use controller_core::data_import_cron as crons;
use controller_core::meta;
use controller_core::openshift::INFRASTRUCTURE;
use controller_core::storage_profile::UNSUPPORTED;

/// All numbers, in the text format of Prometheus.
pub fn page(engine: &Engine) -> String {
    let mut text = String::new();
    let caches = &engine.api.caches;
    let unbegun = caches.volumes.find(&Term::Waits);
    let is_pending = |volume: &&Arc<DataVolume>| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let spec = &volume.spec;
        let of_pvc = spec.pvc.as_ref().and_then(|pvc| pvc.storage_class_name.as_ref());
        let of_storage = spec.storage.as_ref().and_then(|s| s.storage_class_name.as_ref());
        matches!(phase, None | Some("" | "Pending")) && of_pvc.or(of_storage).is_none()
    };
    let pending = unbegun.iter().filter(is_pending).count();
    head(&mut text, "kubevirt_cdi_datavolume_pending", "gauge", "DataVolumes without a class");
    line(&mut text, "kubevirt_cdi_datavolume_pending", "", pending as u64);

    head(&mut text, "kubevirt_cdi_storageprofile_info", "gauge", "What storage is good for");
    for profile in caches.profiles.list().iter() {
        line(&mut text, "kubevirt_cdi_storageprofile_info", &about(engine, profile), 1);
    }

    let outdated = "kubevirt_cdi_dataimportcron_outdated";
    head(&mut text, outdated, "gauge", "DataImportCrons without their newest image");
    for cron in caches.crons.filter(|_| true) {
        let (is_outdated, is_pending) = crons::outdated_metric(&cron);
        let (namespace, name) = (meta::namespace(&cron.metadata), meta::name(&cron.metadata));
        let place = format!("namespace=\"{namespace}\",cron_name=\"{name}\"");
        let labels = format!("{place},pending=\"{is_pending}\"");
        line(&mut text, outdated, &labels, u64::from(is_outdated));
    }

    let undecodable = "kubevirt_cdi_undecodable_objects";
    head(&mut text, undecodable, "gauge", "Objects that the controllers cannot decode and skip");
    for (kind, count) in caches.undecodable() {
        line(&mut text, undecodable, &format!("kind=\"{kind}\""), count as u64);
    }

    head(&mut text, "cdi_controller_queue_depth", "gauge", "Work that waits now");
    for (name, queue) in engine.queues.all() {
        let labels = format!("controller=\"{name}\"");
        line(&mut text, "cdi_controller_queue_depth", &labels, queue.depth().0 as u64);
    }
    head(&mut text, "cdi_controller_queue_later", "gauge", "Work that waits until later");
    for (name, queue) in engine.queues.all() {
        let labels = format!("controller=\"{name}\"");
        line(&mut text, "cdi_controller_queue_later", &labels, queue.depth().1 as u64);
    }
    let reads = "Reads of what is not watched";
    head(&mut text, "cdi_controller_reads_total", "counter", reads);
    line(&mut text, "cdi_controller_reads_total", "", engine.api.reads());
    head(&mut text, "cdi_controller_writes_total", "counter", "Writes to the API server");
    line(&mut text, "cdi_controller_writes_total", "", engine.api.writes());
    text
}

/// The labels of a profile's line.
fn about(engine: &Engine, profile: &StorageProfile) -> String {
    let caches = &engine.api.caches;
    let name = meta::name(&profile.metadata);
    let status = profile.status.clone().unwrap_or_default();
    let provisioner = status.provisioner.unwrap_or_default();
    let sets = status.claim_property_sets.unwrap_or_default();
    let is_complete = UNSUPPORTED.contains(&provisioner.as_str())
        || (!sets.is_empty() && sets.iter().all(|set| !set.access_modes.is_empty()));
    let is_shared =
        sets.iter().any(|set| set.access_modes.iter().any(|mode| mode == "ReadWriteMany"));
    let is_smart = match status.clone_strategy.as_deref() {
        Some("csi-clone") => caches.drivers.get("", &provisioner).is_some(),
        Some("snapshot") => status.snapshot_class.is_some(),
        _ => false,
    };
    let infrastructure = caches.infrastructures.get("", INFRASTRUCTURE);
    let is_single_node = infrastructure.is_some_and(|found| found.is_single_node());
    let all = caches.classes.list();
    let class = classes::named(&all, name);
    let marked = |key| class.is_some_and(|class| meta::is_true(&class.metadata, key));
    let labels = [
        ("storageclass", name.to_owned()),
        ("provisioner", provisioner),
        ("complete", is_complete.to_string()),
        ("default", marked(api::annotations::request::DEFAULT_CLASS).to_string()),
        ("virtdefault", marked(api::annotations::request::DEFAULT_VIRT_CLASS).to_string()),
        ("rwx", is_shared.to_string()),
        ("smartclone", is_smart.to_string()),
        // On one node nothing has to be reached from another.
        ("degraded", (!is_smart || !(is_shared || is_single_node)).to_string()),
    ];
    let quoted = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let pairs: Vec<_> =
        labels.iter().map(|(key, value)| format!("{key}=\"{}\"", quoted(value))).collect();
    pairs.join(",")
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // A String takes all that is written.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &str, value: u64) {
    let _ = match labels {
        "" => writeln!(text, "{name} {value}"),
        labels => writeln!(text, "{name}{{{labels}}} {value}"),
    };
}
