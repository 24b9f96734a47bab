//! Replaces pods of the programs that cannot work any more.

use std::collections::BTreeMap;

use crate::api_client::Propagation;
use crate::error::Error;
use crate::events::InstallationEvent;
use crate::installer::apply::{ApplyContext, ApplyReport};
use crate::kinds::{self, ObjectId};
use crate::metadata;
use crate::plan::account_tokens::{may_have_rejected_tokens, pods_with_rejected_tokens};
use crate::plan::completion::WriteVerb;

/// The pods of the programs.
pub const PROGRAM_SELECTOR: &str =
    "cdi.kubevirt.io in (cdi-apiserver,cdi-deployment,cdi-uploadproxy)";

/// Deletes the pods whose ServiceAccount was created after them. Their Deployments create others.
pub async fn replace_pods_with_rejected_tokens(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    namespace: &str,
) {
    if let Err(error) = delete_pods(context, report, namespace).await {
        report.fail(context, WriteVerb::Delete, "pods of the programs".to_owned(), &error).await;
    }
}

async fn delete_pods(
    context: &mut ApplyContext<'_>,
    report: &ApplyReport,
    namespace: &str,
) -> Result<(), Error> {
    let accounts: BTreeMap<_, _> = report
        .observed
        .iter()
        .filter(|(id, _)| id.kind == &kinds::SERVICE_ACCOUNT)
        .map(|(id, account)| (id.name.clone(), account))
        .collect();
    let mut deployments = report.observed.iter().filter(|(id, _)| id.kind == &kinds::DEPLOYMENT);
    if !deployments.any(|(_, deployment)| may_have_rejected_tokens(deployment, &accounts)) {
        return Ok(());
    }
    let pods = context.api.list(&kinds::POD, namespace, Some(PROGRAM_SELECTOR)).await?;
    for pod in pods_with_rejected_tokens(&pods, &accounts) {
        let id = ObjectId::new(&kinds::POD, namespace, metadata::name(pod));
        context.api.delete(&id, metadata::uid(pod), Propagation::Background).await?;
        let message =
            format!("Deleted {id}: its ServiceAccount was created again, so its token is rejected");
        tracing::info!("{message}");
        let event = InstallationEvent::normal(WriteVerb::Delete.success_reason(), message);
        context.events.record(context.api, context.installation, event, context.now).await;
    }
    Ok(())
}
