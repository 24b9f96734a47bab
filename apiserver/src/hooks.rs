//! From a request for admission to its verdict: looks up what the rules need, and asks them.

use std::time::{Duration, SystemTime};

use api::annotations::request as ask;
use api::v1beta1::{DataImportCron, DataVolume};
use api::validate::CLUSTER_SCHEMES;
use api::validate_spec;
use controller_core::data_import_cron::{self as golden, GoldenImage};

use crate::app::App;
use crate::error::Error;
use crate::review::{Operation, Request, User};
use crate::rules::clone::{self, Original, Wish};
use crate::rules::data_volume::Volume;
use crate::rules::{
    claims, data_import_cron, data_volume, installation, object_transfer, populator, requester,
};
use crate::verdict::Verdict;

/// How long a call looks for an image that may be reused.
const GOLDEN_WITHIN: Duration = Duration::from_secs(3);

/// Who asks for what to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A DataVolume: is it right?
    DataVolume,
    /// A DataVolume: may it be a copy?
    DataVolumeToken,
    /// A DataImportCron.
    DataImportCron,
    /// A VolumeImportSource or VolumeUploadSource.
    Populator,
    /// The end of an installation.
    Installation,
    /// An ObjectTransfer.
    ObjectTransfer,
    /// A claim that wants to be completed.
    Claim,
}

impl Hook {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::DataVolume,
        Self::DataVolumeToken,
        Self::DataImportCron,
        Self::Populator,
        Self::Installation,
        Self::ObjectTransfer,
        Self::Claim,
    ];

    /// Where it is called, as the configurations of clusters have it.
    pub const fn path(self) -> &'static str {
        match self {
            Self::DataVolume => "/datavolume-validate",
            Self::DataVolumeToken => "/datavolume-mutate",
            Self::DataImportCron => "/dataimportcron-validate",
            Self::Populator => "/populator-validate",
            Self::Installation => "/cdi-validate",
            Self::ObjectTransfer => "/objecttransfer-validate",
            Self::Claim => "/pvc-mutate",
        }
    }
}

/// Judges one request.
///
/// # Errors
/// When what the rules need cannot be looked up.
pub async fn judge(app: &App, hook: Hook, request: &Request) -> Result<Verdict, Error> {
    match hook {
        Hook::DataVolume => data_volume(app, request).await,
        Hook::DataVolumeToken => token(app, request).await,
        Hook::DataImportCron => Ok(data_import_cron::validate(request)),
        Hook::Populator => Ok(populator::validate(request)),
        Hook::Installation => match installation::counts_volumes(request) {
            Ok(true) => Ok(installation::validate(app.cluster.volumes().await?)),
            Ok(false) => Ok(Verdict::ALLOWED),
            Err(verdict) => Ok(verdict),
        },
        Hook::ObjectTransfer => {
            let is_taken = match object_transfer::destination(request) {
                Some(destination) => app.cluster.is_taken(&destination).await?,
                None => false,
            };
            Ok(object_transfer::validate(request, is_taken))
        }
        Hook::Claim => claim(app, request).await,
    }
}

async fn data_volume(app: &App, request: &Request) -> Result<Verdict, Error> {
    let mut facts = data_volume::Facts::default();
    if let Some((namespace, name)) = data_volume::claim_in_question(request) {
        facts.claim = app.cluster.claim(&namespace, &name).await?;
        facts.gates = app.gates();
    }
    Ok(data_volume::validate(request, &facts))
}

async fn token(app: &App, request: &Request) -> Result<Verdict, Error> {
    if !matches!(request.operation, Operation::Create | Operation::Update) || request.is_deleting()
    {
        return Ok(Verdict::ALLOWED);
    }
    let volume: Volume = match request.object() {
        Ok(volume) => volume,
        Err(reason) => return Ok(Verdict::Refused(reason)),
    };
    let is_new = request.operation == Operation::Create;
    let old: Option<Volume> = request.old_object().ok().filter(|_| !is_new);
    // An update is granted nothing, and the programs write on every DataVolume, for whomever it was made.
    if !is_new && requester::is_own_program(&request.user_info, app.cluster.namespace()) {
        return Ok(clone::not_granted(&volume, old.as_ref()));
    }
    // A spec that is invalid by itself is refused by the validation, which is called later and names the rule. What its
    // source refers to says nothing about it.
    if is_new && validate_spec(&volume.spec, CLUSTER_SCHEMES).is_err() {
        return Ok(clone::not_granted(&volume, None));
    }
    match wanted(app, request, &volume).await? {
        Wanted::Copy(original) if is_new => {
            let suffix = random_suffix()?;
            let now = SystemTime::now();
            Ok(clone::granted(request, &volume, &original, &app.key, (&suffix, now))?)
        }
        Wanted::Copy(_) | Wanted::Nothing => Ok(clone::not_granted(&volume, old.as_ref())),
        Wanted::Refused(verdict) => Ok(verdict),
    }
}

/// What is wanted of other volumes.
enum Wanted {
    /// A copy, and whoever asks may have it.
    Copy(Original),
    /// Nothing, or nothing that anybody has to be allowed now.
    Nothing,
    /// What cannot be had.
    Refused(Verdict),
}

async fn wanted(app: &App, request: &Request, volume: &Volume) -> Result<Wanted, Error> {
    // What is there already is given nothing, so nothing has to be there for it.
    let is_update = request.operation == Operation::Update;
    let original = match original(app, request, volume).await? {
        Found::Original(original) => original,
        Found::Nothing => return Ok(Wanted::Nothing),
        Found::Gone(what) => {
            let refused = Verdict::Refused(format!("{what} not found"));
            return unless_complete(app, request, volume, is_update, refused).await;
        }
    };
    if !original.is_elsewhere(&request.namespace) {
        return Ok(Wanted::Copy(original));
    }
    if !app.cluster.has_namespace(&original.namespace).await? {
        let refused = Verdict::Refused(format!("namespace {:?} not found", original.namespace));
        return unless_complete(app, request, volume, is_update, refused).await;
    }
    let user = reviewed_user(app, request).await?;
    if app.cluster.may_any(&user, original.permissions()).await? {
        return Ok(Wanted::Copy(original));
    }
    let refused = clone::denied(&user.username, &original);
    unless_complete(app, request, volume, false, refused).await
}

/// Refuses a DataVolume whose source cannot be had, unless nothing is going to be read from it: its content is said to be
/// there already, or its PVC is there with all of its content and becomes the DataVolume's.
async fn unless_complete(
    app: &App,
    request: &Request,
    volume: &Volume,
    is_exempt: bool,
    refused: Verdict,
) -> Result<Wanted, Error> {
    if is_exempt || clone::is_tolerant(volume) {
        return Ok(Wanted::Nothing);
    }
    let claim = match data_volume::claim_in_question(request) {
        Some((namespace, name)) => app.cluster.claim(&namespace, &name).await?,
        None => None,
    };
    Ok(match claim.is_some_and(|claim| data_volume::is_adopted(volume, &claim, &app.gates())) {
        true => Wanted::Nothing,
        false => Wanted::Refused(refused),
    })
}

/// Whose permission to copy counts: that of the user who creates the DataVolume, and for a program of this installation
/// that of a service account in the DataVolume's namespace. The program creates it for users of that namespace, and its own
/// permissions reach every namespace.
async fn reviewed_user(app: &App, request: &Request) -> Result<User, Error> {
    if !requester::is_own_program(&request.user_info, app.cluster.namespace()) {
        return Ok(request.user_info.clone());
    }
    let cron = match requester::cron_name(request) {
        Some(name) => app.cluster.cron(&request.namespace, name).await?,
        None => None,
    };
    let account = cron.and_then(|cron| cron.spec.service_account_name);
    Ok(requester::on_behalf_of(&request.namespace, account.as_deref()))
}

enum Found {
    Original(Original),
    Nothing,
    Gone(String),
}

async fn original(app: &App, request: &Request, volume: &Volume) -> Result<Found, Error> {
    if let Some(golden) = golden_image(app, request, volume).await? {
        return Ok(Found::Original(golden));
    }
    let mut wish = clone::wish(volume, &request.namespace);
    for followed in [false, true] {
        let Wish::Behind(namespace, name) = &wish else { break };
        wish = match app.cluster.data_source(namespace, name).await? {
            Some(source) => clone::behind(&source, followed),
            // Where a DataSource points to nothing, there may be something later.
            None if followed => Wish::Nothing,
            None => return Ok(Found::Gone(format!("DataSource {namespace}/{name}"))),
        };
    }
    Ok(match wish {
        Wish::Copy(original) => Found::Original(original),
        Wish::Nothing | Wish::Behind(..) => Found::Nothing,
    })
}

/// The image that a new DataVolume would fetch, if its namespace holds it already and the DataVolume asks for a clone then.
/// The PVC or VolumeSnapshot has to be in that namespace and carry the controller's proof of what it holds.
async fn golden_image(
    app: &App,
    request: &Request,
    volume: &Volume,
) -> Result<Option<Original>, Error> {
    let is_new = request.operation == Operation::Create;
    if !is_new || volume.annotation(ask::REUSE_GOLDEN_IMAGE).is_none() {
        return Ok(None);
    }
    let Some(key) = &app.verifying_key else { return Ok(None) };
    // What is wrong with one that cannot be read, the other hook says.
    let Ok(mut wanted) = request.object::<DataVolume>() else { return Ok(None) };
    wanted.metadata.namespace = Some(request.namespace.clone());
    let namespace = &request.namespace;
    let is_same = |cron: &DataImportCron| golden::has_same_image(&wanted, cron);
    // It is one way to have the image; where it takes too long, the DataVolume fetches the image as it says.
    let crons = match tokio::time::timeout(GOLDEN_WITHIN, app.cluster.crons(namespace, is_same))
        .await
    {
        Ok(crons) => crons?,
        Err(_) => {
            tracing::warn!(
                "cannot look for a golden image in {namespace}: too many DataImportCrons or calls"
            );
            return Ok(None);
        }
    };
    let now = SystemTime::now();
    for cron in crons {
        let name = &cron.spec.managed_data_source;
        let Some(data_source) = app.cluster.data_source(namespace, name).await? else { continue };
        let golden = golden::golden_image(&cron, &data_source);
        let Some(GoldenImage { source, image }) = golden else { continue };
        let Some(original) = clone::original(&source) else { continue };
        if original.is_elsewhere(namespace) {
            continue;
        }
        let Some(metadata) = app.cluster.metadata_of(&original).await? else { continue };
        let is_there = metadata.deletion_timestamp.is_none();
        if is_there && image.is_proven_by(key, original.resource(), &metadata, now) {
            return Ok(Some(original));
        }
    }
    Ok(None)
}

async fn claim(app: &App, request: &Request) -> Result<Verdict, Error> {
    if !request.is_about("", "persistentvolumeclaims") || request.operation != Operation::Create {
        return Ok(Verdict::Refused("expected a new PersistentVolumeClaim".into()));
    }
    if !app.renders_claims() {
        return Ok(Verdict::ALLOWED);
    }
    let object = match request.object() {
        Ok(object) => object,
        Err(reason) => return Ok(Verdict::Refused(reason)),
    };
    let with_original = claims::sizing(&object) == claims::Sizing::OfOriginal;
    let namespace = &request.namespace;
    let facts = app.cluster.claim_facts(&object, namespace, with_original, app.config()).await?;
    Ok(claims::complete(&object, &facts))
}

/// Five characters, of those that the cluster itself makes names with: none looks like another, and no word comes out.
fn random_suffix() -> Result<String, Error> {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let bytes = runtime::random_bytes::<5>().map_err(Error::Random)?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_has_a_path_of_its_own() {
        let mut paths: Vec<_> = Hook::ALL.iter().map(|hook| hook.path()).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), Hook::ALL.len());
    }

    #[test]
    fn a_suffix_is_five_harmless_characters() {
        let suffix = random_suffix().unwrap();
        assert_eq!(suffix.len(), 5);
        assert!(api::metadata::is_object_name(&suffix), "{suffix}");
    }
}
