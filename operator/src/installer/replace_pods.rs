//! Replaces pods of the programs that cannot work any more.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api_client::Propagation;
use crate::error::Error;
use crate::events::InstallationEvent;
use crate::installer::apply::{ApplyContext, ApplyReport};
use crate::kinds::{self, ObjectId};
use crate::metadata;
use crate::plan::account_tokens::pods_with_rejected_tokens;
use crate::plan::completion::WriteVerb;

/// Deletes the pods whose ServiceAccount was created after them. Their Deployments create others. `pods`: those of the
/// programs at the beginning of the pass; a later one is replaced by the next pass.
pub async fn replace_pods_with_rejected_tokens(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    namespace: &str,
    pods: &[Value],
) {
    if let Err(error) = delete_pods(context, report, namespace, pods).await {
        report.fail(context, WriteVerb::Delete, "pods of the programs".to_owned(), &error).await;
    }
}

async fn delete_pods(
    context: &mut ApplyContext<'_>,
    report: &ApplyReport,
    namespace: &str,
    pods: &[Value],
) -> Result<(), Error> {
    let accounts: BTreeMap<_, _> = report
        .observed
        .iter()
        .filter(|(id, _)| id.kind == &kinds::SERVICE_ACCOUNT)
        .map(|(id, account)| (id.name.clone(), account))
        .collect();
    for pod in pods_with_rejected_tokens(pods, &accounts) {
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
