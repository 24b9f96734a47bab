//! The method of a clone: the decision tables, and invariants.

use api::v1beta1::ClaimVolumeMode;
use contract::ByteCount;
use controller_core::clone::{
    ClaimFacts, ClassFacts, CloneFacts, ClonePlan, ContentFacts, Decision, Fallback, SnapshotFacts,
    SourceFacts, Strategy, TargetClass, TargetFacts, plan_clone,
};

const GIB: u64 = 1 << 30;

fn size(gib: u64) -> ByteCount {
    ByteCount::new(gib * GIB)
}

/// Ten GiB on ceph to ten GiB on ceph, both block devices, without expansion.
fn claim_to_claim() -> CloneFacts {
    CloneFacts {
        target: TargetFacts {
            class: TargetClass::Known(ClassFacts {
                provisioner: "ceph".into(),
                expands: false,
                strategy: None,
            }),
            mode: ClaimVolumeMode::Block,
            request: Some(size(10)),
            permissive: false,
        },
        source: SourceFacts::Claim(Some(ClaimFacts {
            driver: Some("ceph".into()),
            mode: ClaimVolumeMode::Block,
            request: Some(size(10)),
            capacity: Some(size(10)),
            snapshot_class: Some("ceph-snap".into()),
        })),
        is_disk: true,
        requested: None,
        strategy_override: None,
    }
}

fn snapshot_to_claim() -> CloneFacts {
    let content = ContentFacts { driver: "ceph".into(), mode: ClaimVolumeMode::Block };
    let source = SnapshotFacts { content: Some(content), restore_size: Some(size(10)) };
    CloneFacts { source: SourceFacts::Snapshot(Some(source)), ..claim_to_claim() }
}

fn class(facts: &mut CloneFacts) -> &mut ClassFacts {
    match &mut facts.target.class {
        TargetClass::Known(class) => class,
        other => panic!("{other:?}"),
    }
}

fn claim(facts: &mut CloneFacts) -> &mut ClaimFacts {
    match &mut facts.source {
        SourceFacts::Claim(Some(claim)) => claim,
        other => panic!("{other:?}"),
    }
}

fn snapshot(facts: &mut CloneFacts) -> &mut SnapshotFacts {
    match &mut facts.source {
        SourceFacts::Snapshot(Some(snapshot)) => snapshot,
        other => panic!("{other:?}"),
    }
}

/// The decision in one line.
fn summary(decision: &Decision) -> String {
    match decision {
        Decision::Wait(wait) => format!("wait: {wait:?}"),
        Decision::Refuse(refusal) => format!("refuse: {refusal}"),
        Decision::Clone(plan) => {
            let how = match plan {
                ClonePlan::CsiClone => "csi-clone".into(),
                ClonePlan::Snapshot { class } => format!("snapshot of {class}"),
                ClonePlan::Restore => "restore".into(),
                ClonePlan::Copy { .. } => "copy".into(),
                ClonePlan::RestoreAndCopy { .. } => "restore and copy".to_owned(),
            };
            let because = plan.fallback().map(|why| format!(": {}: {why}", why.reason()));
            format!("{how}{}", because.unwrap_or_default())
        }
    }
}

const FILES: &str =
    "refuse: source volumeMode and target volumeMode do not match, contentType (archive)";

type Case = (&'static str, fn(&mut CloneFacts), &'static str);

fn check(facts: fn() -> CloneFacts, table: &[Case]) {
    for (case, change, expected) in table {
        let mut facts = facts();
        change(&mut facts);
        assert_eq!(summary(&plan_clone(&facts)), *expected, "{case}");
    }
}

#[test]
fn pvc_clone_decision_table() {
    const NO_CLASS: &str = "copy: NoVolumeSnapshotClass: No compatible volumesnapshotclass found";
    const DRIVERS: &str = "copy: IncompatibleProvisioners: Provisioners are incompatible";
    const MODES: &str =
        "copy: IncompatibleVolumeModes: The volume modes of source and target are incompatible";
    const GROWTH: &str = "copy: NoVolumeExpansion: No volume expansion is possible";
    let table: &[Case] = &[
        ("all fits", |_| (), "snapshot of ceph-snap"),
        ("no class named", |f| f.target.class = TargetClass::Unset, "wait: ForClass"),
        (
            "empty class",
            |f| f.target.class = TargetClass::Empty,
            "refuse: claim has emptystring storageclass, will not work",
        ),
        (
            "missing class",
            |f| f.target.class = TargetClass::Missing { name: "fast".into() },
            "refuse: target storage class not found: \"fast\"",
        ),
        ("missing source", |f| f.source = SourceFacts::Claim(None), "wait: ForSource"),
        (
            "too small",
            |f| f.target.request = Some(size(9)),
            "refuse: target resources requests storage size is smaller than the source: 9663676416 < 10737418240",
        ),
        (
            "too small, but permissive",
            |f| {
                f.target.request = Some(size(9));
                f.target.permissive = true;
            },
            "snapshot of ceph-snap",
        ),
        ("profile: csi", |f| class(f).strategy = Some(Strategy::CsiClone), "csi-clone"),
        ("profile: copy", |f| class(f).strategy = Some(Strategy::Copy), "copy"),
        (
            "override before profile",
            |f| {
                class(f).strategy = Some(Strategy::Copy);
                f.strategy_override = Some(Strategy::CsiClone);
            },
            "csi-clone",
        ),
        (
            "annotation before override",
            |f| {
                f.strategy_override = Some(Strategy::CsiClone);
                f.requested = Some(Strategy::Copy);
            },
            "copy",
        ),
        (
            "annotation with an impossible strategy",
            |f| {
                f.requested = Some(Strategy::CsiClone);
                claim(f).driver = Some("nfs".into());
            },
            DRIVERS,
        ),
        ("no snapshot class", |f| claim(f).snapshot_class = None, NO_CLASS),
        (
            "csi needs no snapshot class",
            |f| {
                claim(f).snapshot_class = None;
                f.strategy_override = Some(Strategy::CsiClone);
            },
            "csi-clone",
        ),
        ("drivers differ", |f| claim(f).driver = Some("nfs".into()), DRIVERS),
        ("driver not known", |f| claim(f).driver = None, DRIVERS),
        ("modes differ", |f| f.target.mode = ClaimVolumeMode::Filesystem, MODES),
        (
            "a requested copy has no reason",
            |f| {
                f.strategy_override = Some(Strategy::Copy);
                f.target.mode = ClaimVolumeMode::Filesystem;
            },
            "copy",
        ),
        (
            "the first of several reasons",
            |f| {
                claim(f).driver = None;
                f.target.mode = ClaimVolumeMode::Filesystem;
                f.target.request = Some(size(20));
            },
            DRIVERS,
        ),
        ("an archive", |f| f.is_disk = false, "snapshot of ceph-snap"),
        (
            "an archive, and modes differ",
            |f| {
                f.is_disk = false;
                f.target.mode = ClaimVolumeMode::Filesystem;
            },
            FILES,
        ),
        (
            "an archive, modes differ, and a copy is requested",
            |f| {
                f.is_disk = false;
                f.strategy_override = Some(Strategy::Copy);
                f.target.mode = ClaimVolumeMode::Filesystem;
            },
            FILES,
        ),
        ("larger, no expansion", |f| f.target.request = Some(size(20)), GROWTH),
        (
            "larger, expands",
            |f| {
                f.target.request = Some(size(20));
                class(f).expands = true;
            },
            "snapshot of ceph-snap",
        ),
        (
            "capacity of the source larger than its request",
            |f| {
                claim(f).capacity = Some(size(20));
                f.target.request = Some(size(20));
            },
            "snapshot of ceph-snap",
        ),
        ("not bound", |f| claim(f).capacity = None, "refuse: source/target size info missing"),
        (
            "a copy needs no capacity",
            |f| {
                claim(f).capacity = None;
                f.strategy_override = Some(Strategy::Copy);
            },
            "copy",
        ),
    ];
    check(claim_to_claim, table);
}

#[test]
fn snapshot_clone_decision_table() {
    let table: &[Case] = &[
        ("all fits", |_| (), "restore"),
        ("no class named", |f| f.target.class = TargetClass::Unset, "wait: ForClass"),
        ("missing source", |f| f.source = SourceFacts::Snapshot(None), "wait: ForSource"),
        (
            "not bound to a content",
            |f| snapshot(f).content = None,
            "refuse: volumesnapshotcontent not found for the source snapshot",
        ),
        (
            "of another driver",
            |f| class(f).provisioner = "nfs".into(),
            "restore and copy: NoProvisionerMatch: The storageclass provisioner does not match the \
             volumesnapshotcontent driver",
        ),
        (
            "size not known",
            |f| snapshot(f).restore_size = None,
            "refuse: source/target size info missing",
        ),
        (
            "larger, no expansion",
            |f| f.target.request = Some(size(20)),
            "restore and copy: NoVolumeExpansion: No volume expansion is possible",
        ),
        (
            "larger, expands",
            |f| {
                f.target.request = Some(size(20));
                class(f).expands = true;
            },
            "restore",
        ),
        (
            "modes differ",
            |f| f.target.mode = ClaimVolumeMode::Filesystem,
            "restore and copy: IncompatibleVolumeModes: The volume modes of source and target are incompatible",
        ),
        (
            "an archive, and modes differ",
            |f| {
                f.is_disk = false;
                f.target.mode = ClaimVolumeMode::Filesystem;
            },
            FILES,
        ),
        (
            "copy in the annotation",
            |f| f.requested = Some(Strategy::Copy),
            "restore and copy: HostAssistedClone: The annotation cdi.kubevirt.io/cloneType asks for a copy",
        ),
        ("other strategy in the annotation", |f| f.requested = Some(Strategy::CsiClone), "restore"),
        ("strategy of the CDI object", |f| f.strategy_override = Some(Strategy::Copy), "restore"),
        ("strategy of the profile", |f| class(f).strategy = Some(Strategy::CsiClone), "restore"),
    ];
    check(snapshot_to_claim, table);
}

/// All combinations of the facts, each in all values that make a difference.
fn all_facts() -> Vec<CloneFacts> {
    let strategies =
        [None, Some(Strategy::CsiClone), Some(Strategy::Snapshot), Some(Strategy::Copy)];
    let modes = [ClaimVolumeMode::Block, ClaimVolumeMode::Filesystem];
    let sizes = [None, Some(size(10)), Some(size(20))];
    let drivers = [None, Some("ceph".to_owned()), Some("nfs".to_owned())];
    let mut sources = vec![SourceFacts::Claim(None), SourceFacts::Snapshot(None)];
    for mode in modes {
        for driver in &drivers {
            for request in sizes {
                for capacity in sizes {
                    for snapshot_class in [None, Some("snap".to_owned())] {
                        let driver = driver.clone();
                        sources.push(SourceFacts::Claim(Some(ClaimFacts {
                            driver,
                            mode,
                            request,
                            capacity,
                            snapshot_class,
                        })));
                    }
                }
            }
            for restore_size in sizes {
                let content = driver.clone().map(|driver| ContentFacts { driver, mode });
                let source = SnapshotFacts { content, restore_size };
                sources.push(SourceFacts::Snapshot(Some(source)));
            }
        }
    }
    let mut classes =
        vec![TargetClass::Unset, TargetClass::Empty, TargetClass::Missing { name: "gone".into() }];
    for expands in [false, true] {
        for strategy in strategies {
            let provisioner = "ceph".into();
            classes.push(TargetClass::Known(ClassFacts { provisioner, expands, strategy }));
        }
    }
    let mut all = Vec::new();
    for source in &sources {
        for class in &classes {
            for mode in modes {
                for request in sizes {
                    for permissive in [false, true] {
                        for strategy_override in strategies {
                            let class = class.clone();
                            let target = TargetFacts { class, mode, request, permissive };
                            let requests =
                                [(false, None), (true, None), (true, Some(Strategy::Copy))];
                            for (is_disk, requested) in requests {
                                let (target, source) = (target.clone(), source.clone());
                                all.push(CloneFacts {
                                    target,
                                    source,
                                    is_disk,
                                    requested,
                                    strategy_override,
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    all
}

#[test]
fn clone_plan_invariants_hold_for_all_combinations_of_facts() {
    let all = all_facts();
    assert!(all.len() > 50_000, "{}", all.len());
    let mut plans = 0;
    for facts in &all {
        let Decision::Clone(plan) = plan_clone(facts) else { continue };
        plans += 1;
        let TargetClass::Known(class) = &facts.target.class else {
            panic!("a clone without a class: {facts:?}")
        };
        let mode = match &facts.source {
            SourceFacts::Claim(source) => source.as_ref().map(|source| source.mode),
            SourceFacts::Snapshot(source) => {
                source.as_ref().and_then(|source| source.content.as_ref()).map(|one| one.mode)
            }
        };
        assert!(facts.is_disk || mode == Some(facts.target.mode), "{facts:?}");
        let fits = |has: Option<ByteCount>| has >= facts.target.request || class.expands;
        match (&plan, &facts.source) {
            (
                ClonePlan::CsiClone | ClonePlan::Snapshot { .. },
                SourceFacts::Claim(Some(source)),
            ) => {
                assert_eq!(source.driver.as_ref(), Some(&class.provisioner), "{facts:?}");
                assert_eq!(source.mode, facts.target.mode, "{facts:?}");
                assert!(source.capacity.is_some() && fits(source.capacity), "{facts:?}");
                let wanted = facts.requested.or(facts.strategy_override).or(class.strategy);
                assert_eq!(plan.strategy(), wanted.unwrap_or(Strategy::Snapshot), "{facts:?}");
                if let ClonePlan::Snapshot { class } = &plan {
                    assert_eq!(Some(class), source.snapshot_class.as_ref());
                }
            }
            (ClonePlan::Copy { because }, SourceFacts::Claim(Some(_))) => {
                let wanted = facts.requested.or(facts.strategy_override).or(class.strategy);
                assert_eq!(because.is_none(), wanted == Some(Strategy::Copy), "{facts:?}");
            }
            (ClonePlan::Restore, SourceFacts::Snapshot(Some(source))) => {
                let content = source.content.as_ref().unwrap();
                assert_eq!(content.driver, class.provisioner, "{facts:?}");
                assert_eq!(content.mode, facts.target.mode, "{facts:?}");
                assert!(fits(source.restore_size), "{facts:?}");
            }
            (ClonePlan::RestoreAndCopy { .. }, SourceFacts::Snapshot(Some(source))) => {
                assert!(source.content.is_some(), "{facts:?}");
            }
            other => panic!("{other:?}: {facts:?}"),
        }
    }
    assert!(plans > 10_000, "{plans}");
}

#[test]
fn fallback_messages_are_not_empty_and_identify_driver_failures() {
    for facts in &all_facts() {
        if let Decision::Clone(plan) = plan_clone(facts)
            && let Some(because) = plan.fallback()
        {
            assert!(!because.reason().is_empty() && !because.to_string().is_empty());
            assert!(!Fallback::is_driver_failure(&because.to_string()));
        }
    }
    let waited = std::time::Duration::from_secs(600);
    for late in [Fallback::refused("no"), Fallback::DriverTooSlow { waited }] {
        assert!(Fallback::is_driver_failure(&late.to_string()));
    }
    let long = "ä".repeat(5000);
    assert!(Fallback::refused(&long).to_string().len() < 600);
}

#[test]
fn unknown_strategy_name_is_none() {
    for strategy in Strategy::ALL {
        assert_eq!(Strategy::named(strategy.as_str()), Some(strategy));
    }
    for text in ["", "Copy", "smart", "csi"] {
        assert_eq!(Strategy::named(text), None);
    }
}
