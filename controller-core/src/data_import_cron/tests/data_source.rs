//! DataSources that another cron or the user manages.

use super::*;

#[test]
fn data_source_without_the_label_of_the_cron_is_not_changed() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.import(1);
    cluster.sources[0].metadata.labels.as_mut().unwrap().remove(labels::DATA_IMPORT_CRON);
    cluster.import(2);
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(1))));
    assert_eq!(cluster.imported(), Some(name(2)));
    let all = cluster.sources[0].metadata.labels.as_mut().unwrap();
    all.insert(labels::DATA_IMPORT_CRON.into(), "cron".into());
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(2))));
}

#[test]
fn two_crons_do_not_share_a_data_source() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.import(1);
    let mut other = cluster.cron.clone();
    other.metadata.name = Some("other".into());
    cluster.sources[0]
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert(labels::DATA_IMPORT_CRON.into(), "other".into());
    cluster.manager = Some(other.clone());
    cluster.publish(2);
    let plan = cluster.reconcile();
    assert_eq!(
        plan.events,
        [Event::warning(
            "ErrDataSourceAlreadyManaged",
            "DataSource fedora is already managed by DataImportCron other"
        )]
    );
    assert!(plan.changes.is_empty() && plan.poll.is_none());
    // A cron that manages another DataSource does not conflict.
    other.spec.managed_data_source = "centos".into();
    cluster.manager = Some(other);
    assert!(cluster.reconcile().events.is_empty());
}
