//! The writes of a cron's changes, in their order: deletions come last, when no DataSource refers to the objects any more.

use api::events;
use api::v1beta1::DataImportCron;
use auth::token::Resource;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::{Change, Kind, NamespaceObjects, ProvenImage};
use crate::components::DATA_IMPORT_CRON as COMPONENT;
use crate::data_source::members;
use crate::meta;
use crate::object::{ObjectKind, ObjectRef, Writable};
use crate::plan::{Plan, Write};
use crate::refusal::{Audience, CauseText, OnRefused, RefusalReport, ReportedFailures};
use crate::snapshot::VolumeSnapshot;

/// Whether a PVC has a valid proof that it holds an image.
pub type IsProven<'a> = &'a dyn Fn(&PersistentVolumeClaim, &ProvenImage) -> bool;

/// All changes of a cron, in whose namespace `all` objects are. The cron reports a DataVolume that will be refused again.
pub fn changes_plan(
    cron: &DataImportCron,
    changes: Vec<Change>,
    all: &NamespaceObjects,
    is_proven: IsProven,
) -> Plan {
    let audience = vec![Audience {
        component: COMPONENT,
        about: ObjectRef::for_object(cron),
        prefix: String::new(),
    }];
    let report = RefusalReport {
        which: ReportedFailures::Final,
        kind: ObjectKind::DataVolume,
        reason: events::CLAIM_NOT_VALID,
        prefix: "Unable to create DataVolume: ".into(),
        cause: CauseText::Message,
        audience,
        note: None,
    };
    let writes = writes(meta::namespace(&cron.metadata), changes, all, is_proven);
    Plan { on_refused: OnRefused::Report(Box::new(report)), ..Plan::writes(writes) }
}

/// The writes of these changes. An object that is gone needs none. What a snapshot holds is signed if it is known of its PVC,
/// also by an earlier one of these changes.
pub fn writes(
    namespace: &str,
    changes: Vec<Change>,
    all: &NamespaceObjects,
    is_proven: IsProven,
) -> Vec<Write> {
    let mut proven: Vec<(String, ProvenImage)> = Vec::new();
    let mut writes = Vec::new();
    for change in changes {
        let mut signature = None;
        match &change {
            Change::Prove { claim, image } => proven.push((claim.clone(), image.clone())),
            Change::CreateSnapshot { snapshot, image } => {
                let name = meta::name(&snapshot.metadata);
                let is_signed =
                    named(all.claims, name).is_some_and(|claim| is_proven(claim, image));
                if is_signed || proven.iter().any(|(claim, known)| claim == name && known == image)
                {
                    let target = ObjectRef::named::<VolumeSnapshot>(namespace, name);
                    signature = Some(Write::SignCreated { target, image: image.clone() });
                }
            }
            _ => {}
        }
        writes.extend(write(change, all).into_iter().chain(signature));
    }
    writes
}

fn write(change: Change, all: &NamespaceObjects) -> Option<Write> {
    match change {
        Change::CreateVolume(volume) => Some(Write::create(*volume)),
        Change::CreateSnapshot { snapshot, .. } => Some(Write::create(*snapshot)),
        Change::CreateSource(source) => Some(Write::create(*source)),
        Change::Prove { claim, image } => {
            let claim = named(all.claims, &claim)?;
            let statement = image.statement(Resource::pvcs(), &claim.metadata)?;
            Some(Write::sign_image(claim, statement))
        }
        Change::ChangeSource { name, source, labels } => {
            let present = named(all.sources, &name)?;
            let mut merge = json!({});
            if !labels.is_empty() {
                merge["metadata"] = json!({ "labels": labels });
            }
            if let Some(source) = source {
                merge["spec"] = json!({ "source": members(&source) });
            }
            Some(Write::patch(present, merge))
        }
        Change::Mark { kind, name, labels, annotations } => {
            let (labels, annotations) = (&labels, &annotations);
            match kind {
                Kind::Volume => Write::metadata(named(all.volumes, &name)?, labels, annotations),
                Kind::Claim => Write::metadata(named(all.claims, &name)?, labels, annotations),
                Kind::Snapshot => {
                    Write::metadata(named(all.snapshots, &name)?, labels, annotations)
                }
                Kind::Source => Write::metadata(named(all.sources, &name)?, labels, annotations),
            }
        }
        Change::Delete(kind, name) => match kind {
            Kind::Volume => Write::delete(named(all.volumes, &name)?),
            Kind::Claim => Write::delete(named(all.claims, &name)?),
            Kind::Snapshot => Write::delete(named(all.snapshots, &name)?),
            Kind::Source => Write::delete(named(all.sources, &name)?),
        },
    }
}

fn named<'a, K: Writable>(objects: &'a [K], name: &str) -> Option<&'a K> {
    objects.iter().find(|object| meta::name(object.meta()) == name)
}

#[cfg(test)]
mod tests {
    use api::v1beta1::{DataSource, DataVolume};
    use serde_json::Value;

    use super::*;
    use crate::meta::{Changes, Pairs};

    /// What is left of a write in the table: its verb, and the name of the object.
    fn line(write: &Write) -> String {
        let verb = match write {
            Write::Create(_) => "create",
            Write::Patch { merge, .. } => return format!("patch {merge}"),
            Write::Sign { .. } => "sign",
            Write::SignCreated { .. } => "sign created",
            Write::Delete(_) => "delete",
            Write::Replace(_) | Write::SetFinalizer { .. } => "unexpected",
        };
        format!("{verb} {:?}", write.kind())
    }

    fn object<K: serde::de::DeserializeOwned>(metadata: &Value, spec: Value) -> K {
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn each_change_has_its_write_and_objects_that_are_gone_have_none() {
        let meta = json!({ "name": "a", "namespace": "images", "uid": "1" });
        let volumes: [DataVolume; 1] = [object(&meta, json!({}))];
        let claims: [PersistentVolumeClaim; 1] = [object(&meta, json!({}))];
        let sources: [DataSource; 1] = [object(&meta, json!({ "source": {} }))];
        let snapshot: VolumeSnapshot = object(&meta, json!({ "source": {} }));
        let snapshots = [snapshot.clone()];
        let all = NamespaceObjects {
            volumes: &volumes,
            claims: &claims,
            snapshots: &snapshots,
            sources: &sources,
        };
        let none = NamespaceObjects { volumes: &[], claims: &[], snapshots: &[], sources: &[] };
        let image = ProvenImage { cron_uid: "9".into(), digest: "sha256:0".into() };
        let label = || Pairs::from([("l".to_owned(), "v".to_owned())]);
        let mark = |kind| Change::Mark {
            kind,
            name: "a".into(),
            labels: label(),
            annotations: Changes::default(),
        };
        let delete = |kind| Change::Delete(kind, "a".into());
        let change_source =
            Change::ChangeSource { name: "a".into(), source: None, labels: label() };
        let prove = Change::Prove { claim: "a".into(), image: image.clone() };
        let labelled = r#"patch {"metadata":{"labels":{"l":"v"}}}"#;
        for (change, expected) in [
            (mark(Kind::Volume), labelled),
            (mark(Kind::Claim), labelled),
            (mark(Kind::Snapshot), labelled),
            (mark(Kind::Source), labelled),
            (change_source, labelled),
            (prove.clone(), "sign PersistentVolumeClaim"),
            (delete(Kind::Volume), "delete DataVolume"),
            (delete(Kind::Claim), "delete PersistentVolumeClaim"),
            (delete(Kind::Snapshot), "delete VolumeSnapshot"),
            (delete(Kind::Source), "delete DataSource"),
        ] {
            let planned = |all| writes("images", vec![change.clone()], all, &|_, _| false);
            assert_eq!(planned(&all).iter().map(line).collect::<Vec<_>>(), [expected]);
            assert_eq!(planned(&none), [], "{change:?}");
        }

        let create = Change::CreateSnapshot { snapshot: Box::new(snapshot), image };
        let (plain, signed) =
            (["create VolumeSnapshot"].as_slice(), ["sign created VolumeSnapshot"]);
        let with_signature = [plain, &signed].concat();
        let lines = |changes: Vec<Change>, is_proven: IsProven| {
            writes("images", changes, &all, is_proven).iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(lines(vec![create.clone()], &|_, _| false), plain, "of an unproven PVC");
        assert_eq!(lines(vec![create.clone()], &|_, _| true), with_signature, "of a proven PVC");
        let proven_before = lines(vec![prove, create], &|_, _| false);
        assert_eq!(proven_before[1..], with_signature, "of a PVC that an earlier write proves");
    }
}
