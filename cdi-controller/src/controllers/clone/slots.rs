//! How many clones to a storage class are at work.

use super::*;

/// The clones to the storage class of this one that are at work. What looks like a helper is one only if a claim that we clone
/// to has it, in the right place and by the right name.
pub(super) fn at_work(engine: &Engine, target: &PersistentVolumeClaim) -> Vec<Key> {
    let caches = &engine.api.caches;
    let claims = caches.claims.find(&Term::Helper);
    let snapshots = caches.snapshots.find(&Term::Helper);
    let marked = claims.iter().map(|claim| &claim.metadata);
    let marked = marked.chain(snapshots.iter().map(|snapshot| &snapshot.metadata));
    let owners: HashSet<&str> = marked.filter_map(plan::owner_uid).collect();
    let of_class = meta::storage_class_name(target);
    let is_at_work = |target: &PersistentVolumeClaim| {
        let metadata = &target.metadata;
        let namespace = facts::source_namespace(target).unwrap_or(meta::namespace(metadata));
        let names = Names::noted(metadata);
        let parts = Parts::of(engine, namespace, meta::uid(metadata), &names);
        plan::is_at_work(&parts.temporary(), engine.now())
    };
    let all = owners.into_iter().flat_map(|uid| caches.claims.find(&Term::ClonedTo(uid.into())));
    let mut all: Vec<_> = all.collect();
    all.retain(|claim| {
        is_clone_target(claim)
            && plan::has_finalizer(&claim.metadata)
            && meta::storage_class_name(claim) == of_class
            && is_at_work(claim)
    });
    all.iter().map(|claim| key_of(claim.as_ref())).collect()
}

/// It is not the turn of this one.
pub(super) async fn queue(
    engine: &Engine,
    target: Arc<PersistentVolumeClaim>,
    most: usize,
) -> Result<Requeue, Error> {
    let waits_for = format!("one of {most} clones to its storage class to be done");
    let progress = Progress {
        phase: Phase::Pending,
        waits_for: &waits_for,
        is_queued: true,
        claim: None,
        measured: None,
    };
    let changes = plan::progressed(&target.metadata, &progress);
    workers::note(engine, target, &Pairs::new(), &changes).await?;
    Ok(Requeue::After(TURN))
}
