//! Handles an admission request: looks up the facts, applies the rules.

use std::time::{Duration, SystemTime};

use api::annotations::request;
use api::v1beta1::{DataImportCron, DataVolume};
use api::validate::CLUSTER_SCHEMES;
use api::validate_spec;
use controller_core::data_import_cron::{self as golden, GoldenImage};

use crate::admission_result::AdmissionResult;
use crate::app::App;
use crate::error::Error;
use crate::review::{Operation, Request, User};
use crate::rules::clone::{self, CloneRequest, Original};
use crate::rules::data_volume::Volume;
use crate::rules::{
    claims, data_import_cron, data_volume, installation, object_transfer, populator, requester,
};

/// Time limit of the search for a reusable golden image.
const GOLDEN_LOOKUP_MAX: Duration = Duration::from_secs(3);

/// The webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Validates DataVolumes.
    DataVolume,
    /// Adds a clone token to DataVolumes whose user may clone the source.
    DataVolumeToken,
    /// A DataImportCron.
    DataImportCron,
    /// A VolumeImportSource or VolumeUploadSource.
    Populator,
    /// Deletion of the CDI object.
    Installation,
    /// An ObjectTransfer.
    ObjectTransfer,
    /// Completes PVCs.
    Claim,
}

impl Hook {
    pub const ALL: [Self; 7] = [
        Self::DataVolume,
        Self::DataVolumeToken,
        Self::DataImportCron,
        Self::Populator,
        Self::Installation,
        Self::ObjectTransfer,
        Self::Claim,
    ];

    /// The path in the webhook configurations, as in upstream CDI.
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

/// Reviews one request.
///
/// # Errors
/// When the facts cannot be looked up.
pub async fn review_request(
    app: &App,
    hook: Hook,
    request: &Request,
) -> Result<AdmissionResult, Error> {
    match hook {
        Hook::DataVolume => data_volume(app, request).await,
        Hook::DataVolumeToken => token(app, request).await,
        Hook::DataImportCron => Ok(data_import_cron::validate(request)),
        Hook::Populator => Ok(populator::validate(request)),
        Hook::Installation => match installation::counts_volumes(request) {
            Ok(true) => Ok(installation::validate(&app.cluster.volumes().await?)),
            Ok(false) => Ok(AdmissionResult::ALLOWED),
            Err(result) => Ok(result),
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

async fn data_volume(app: &App, request: &Request) -> Result<AdmissionResult, Error> {
    let mut facts = data_volume::DataVolumeFacts::default();
    if let Some((namespace, name)) = data_volume::claim_in_question(request) {
        facts.claim = app.cluster.claim(&namespace, &name).await?;
        facts.gates = app.gates();
    }
    Ok(data_volume::validate(request, &facts))
}

async fn token(app: &App, request: &Request) -> Result<AdmissionResult, Error> {
    if !matches!(request.operation, Operation::Create | Operation::Update) || request.is_deleting()
    {
        return Ok(AdmissionResult::ALLOWED);
    }
    let volume: Volume = match request.object() {
        Ok(volume) => volume,
        Err(reason) => return Ok(AdmissionResult::Refused(reason)),
    };
    let is_new = request.operation == Operation::Create;
    let old: Option<Volume> = request.old_object().ok().filter(|_| !is_new);
    // An update gets no token, and the installation's programs update every DataVolume.
    if !is_new && requester::is_own_program(&request.user_info, app.cluster.namespace()) {
        return Ok(clone::allow_without_token(&volume, old.as_ref()));
    }
    // The validating webhook, called later, refuses an invalid spec and names the rule. The state of its
    // source does not matter then.
    if is_new && validate_spec(&volume.spec, CLUSTER_SCHEMES).is_err() {
        return Ok(clone::allow_without_token(&volume, None));
    }
    match decide_clone(app, request, &volume).await? {
        CloneDecision::Clone(original) if is_new => {
            let suffix = random_suffix()?;
            let now = SystemTime::now();
            Ok(clone::allow_with_token(request, &volume, &original, &app.key, (&suffix, now))?)
        }
        CloneDecision::Clone(_) | CloneDecision::NotNeeded => {
            Ok(clone::allow_without_token(&volume, old.as_ref()))
        }
        CloneDecision::Refused(result) => Ok(result),
    }
}

/// Whether a DataVolume may clone.
enum CloneDecision {
    /// The user may clone this source.
    Clone(Original),
    /// It clones nothing, or needs no permission.
    NotNeeded,
    Refused(AdmissionResult),
}

async fn decide_clone(
    app: &App,
    request: &Request,
    volume: &Volume,
) -> Result<CloneDecision, Error> {
    // An existing DataVolume gets no token, so its source need not exist.
    let is_update = request.operation == Operation::Update;
    let original = match original(app, request, volume).await? {
        SourceLookup::Original(original) => original,
        SourceLookup::NoSource => return Ok(CloneDecision::NotNeeded),
        SourceLookup::NotFound(what) => {
            let refused = AdmissionResult::Refused(format!("{what} not found"));
            return unless_complete(app, request, volume, is_update, refused).await;
        }
    };
    if !original.is_elsewhere(&request.namespace) {
        return Ok(CloneDecision::Clone(original));
    }
    if !app.cluster.has_namespace(&original.namespace).await? {
        let refused =
            AdmissionResult::Refused(format!("namespace {:?} not found", original.namespace));
        return unless_complete(app, request, volume, is_update, refused).await;
    }
    let user = reviewed_user(app, request).await?;
    if app.cluster.check_any_access(&user, original.permissions()).await? {
        return Ok(CloneDecision::Clone(original));
    }
    let refused = clone::deny(&user.username, &original);
    unless_complete(app, request, volume, false, refused).await
}

/// Refuses a DataVolume whose source cannot be cloned, unless the source is never read: its annotations state that the
/// content exists, or it adopts a complete PVC.
async fn unless_complete(
    app: &App,
    request: &Request,
    volume: &Volume,
    is_exempt: bool,
    refused: AdmissionResult,
) -> Result<CloneDecision, Error> {
    if is_exempt || clone::is_tolerant(volume) {
        return Ok(CloneDecision::NotNeeded);
    }
    let claim = match data_volume::claim_in_question(request) {
        Some((namespace, name)) => app.cluster.claim(&namespace, &name).await?,
        None => None,
    };
    Ok(if claim.is_some_and(|claim| data_volume::is_adopted(volume, &claim, &app.gates())) {
        CloneDecision::NotNeeded
    } else {
        CloneDecision::Refused(refused)
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

enum SourceLookup {
    Original(Original),
    NoSource,
    NotFound(String),
}

async fn original(app: &App, request: &Request, volume: &Volume) -> Result<SourceLookup, Error> {
    if let Some(golden) = golden_image(app, request, volume).await? {
        return Ok(SourceLookup::Original(golden));
    }
    let mut request_source = clone::clone_request(volume, &request.namespace);
    for followed in [false, true] {
        let CloneRequest::DataSource(namespace, name) = &request_source else { break };
        request_source = match app.cluster.data_source(namespace, name).await? {
            Some(source) => clone::resolve_data_source(&source, followed),
            // A missing second DataSource may be created later.
            None if followed => CloneRequest::Nothing,
            None => return Ok(SourceLookup::NotFound(format!("DataSource {namespace}/{name}"))),
        };
    }
    Ok(match request_source {
        CloneRequest::Copy(original) => SourceLookup::Original(original),
        CloneRequest::Nothing | CloneRequest::DataSource(..) => SourceLookup::NoSource,
    })
}

/// The golden image that a new DataVolume would import, if its namespace holds it and the DataVolume requests reuse.
/// The PVC or VolumeSnapshot has to be in that namespace and carry the controller's proof of its content.
async fn golden_image(
    app: &App,
    request: &Request,
    volume: &Volume,
) -> Result<Option<Original>, Error> {
    let is_new = request.operation == Operation::Create;
    if !is_new || volume.annotation(request::REUSE_GOLDEN_IMAGE).is_none() {
        return Ok(None);
    }
    let Some(key) = &app.verifying_key else { return Ok(None) };
    // The validating webhook reports why an object cannot be parsed.
    let Ok(mut requested) = request.object::<DataVolume>() else { return Ok(None) };
    requested.metadata.namespace = Some(request.namespace.clone());
    let namespace = &request.namespace;
    let is_same = |cron: &DataImportCron| golden::has_same_image(&requested, cron);
    // An optimization only: if it takes too long, the DataVolume imports the image.
    let crons = match tokio::time::timeout(GOLDEN_LOOKUP_MAX, app.cluster.crons(namespace, is_same))
        .await
    {
        Ok(crons) => crons?,
        Err(_) => {
            tracing::warn!(
                "cannot search namespace {namespace} for a golden image: too many DataImportCrons or calls"
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

async fn claim(app: &App, request: &Request) -> Result<AdmissionResult, Error> {
    if !request.is_about("", "persistentvolumeclaims") || request.operation != Operation::Create {
        return Ok(AdmissionResult::Refused("expected a new PersistentVolumeClaim".into()));
    }
    if !app.renders_claims() {
        return Ok(AdmissionResult::ALLOWED);
    }
    let object = match request.object() {
        Ok(object) => object,
        Err(reason) => return Ok(AdmissionResult::Refused(reason)),
    };
    let with_original = claims::sizing(&object) == claims::Sizing::OfOriginal;
    let namespace = &request.namespace;
    let facts = app.cluster.claim_facts(&object, namespace, with_original, app.config()).await?;
    Ok(claims::complete(&object, &facts))
}

/// Five characters of the alphabet that the API server generates names from.
fn random_suffix() -> Result<String, Error> {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let bytes = runtime::random_bytes::<5>().map_err(Error::Random)?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_have_distinct_paths() {
        let mut paths: Vec<_> = Hook::ALL.iter().map(|hook| hook.path()).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), Hook::ALL.len());
    }

    #[test]
    fn suffix_has_five_characters_of_the_alphabet() {
        let suffix = random_suffix().unwrap();
        assert_eq!(suffix.len(), 5);
        assert!(api::metadata::is_object_name(&suffix), "{suffix}");
    }
}
