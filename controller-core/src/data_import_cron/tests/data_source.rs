//! DataSources that another cron or the user manages.

use super::*;

#[test]
fn a_data_source_is_left_to_whoever_took_it() {
    let mut world = World::new(json!({}));
    world.import(1);
    world.sources[0].metadata.labels.as_mut().unwrap().remove(labels::DATA_IMPORT_CRON);
    world.import(2);
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(1))));
    assert_eq!(world.imported(), Some(name(2)));
    let all = world.sources[0].metadata.labels.as_mut().unwrap();
    all.insert(labels::DATA_IMPORT_CRON.into(), "cron".into());
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(2))));
}

#[test]
fn two_crons_do_not_share_a_data_source() {
    let mut world = World::new(json!({}));
    world.import(1);
    let mut other = world.cron.clone();
    other.metadata.name = Some("other".into());
    world.sources[0]
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert(labels::DATA_IMPORT_CRON.into(), "other".into());
    world.manager = Some(other.clone());
    world.publish(2);
    let plan = world.look();
    assert_eq!(
        plan.events,
        [Event::warning(
            "ErrDataSourceAlreadyManaged",
            "DataSource fedora is already managed by DataImportCron other"
        )]
    );
    assert!(plan.changes.is_empty() && plan.poll.is_none());
    // One that manages another is no obstacle.
    other.spec.managed_data_source = "centos".into();
    world.manager = Some(other);
    assert!(world.look().events.is_empty());
}
