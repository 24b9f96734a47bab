//! A controller that reaches no registry has CronJobs look.

use anyhow::{Result, bail};
use api::labels;
use api::v1beta1::DataImportCron;
use e2e::{InstalledOption, NAMESPACE, Program, Test, run_installed_alone};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::world::{cron, disk, name_of, noted, publish, registry, up_to_date, wait_for_reference};

const CONTROLLER: &str = "cdi-deployment";

/// The CronJob of the test's cron.
async fn cron_jobs(test: &Test) -> Result<Vec<CronJob>> {
    let all = Api::<CronJob>::namespaced(test.client(), NAMESPACE);
    let key = labels::DATA_IMPORT_CRON_NAMESPACE;
    let ours = ListParams::default().labels(&format!("{key}={}", test.namespace()));
    Ok(all.list(&ours).await?.items)
}

async fn jobs_look(test: &Test) -> Result<()> {
    let first = publish(test, 1)?;
    test.apply(cron(registry(&first), Some("csi"))).await?;
    // The controller does not poll, and the schedule of the CronJob is a year away: this was the Job that is created
    // with it.
    wait_for_reference(test, "pvc", &name_of(&first)).await?;
    up_to_date(test).await?;
    test.holds(&name_of(&first), &disk(1)).await?;

    let second = publish(test, 2)?;
    let found = cron_jobs(test).await?;
    let [found] = found.as_slice() else { bail!("{} CronJobs", found.len()) };
    let jobs = Api::<Job>::namespaced(test.client(), NAMESPACE);
    let job = json!({
        "metadata": { "name": test.namespace(), "labels": found.labels() },
        "spec": found.spec.job_template.spec,
    });
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    let has_found = |cron: &DataImportCron| {
        noted(cron, api::annotations::cron::DESIRED_DIGEST) == Some(second.digest.as_str())
    };
    test.wait("cron", "with the digest of the second image", has_found).await?;
    wait_for_reference(test, "pvc", &name_of(&second)).await
}

#[test]
fn polling_jobs_are_used_until_the_controller_reaches_the_registry() {
    run_installed_alone("jobs", async |test| {
        let rights = InstalledOption::apply(&test, "polling-jobs").await?;
        let controller = Program::named(&test, CONTROLLER);
        let words = controller.words().await?;
        let arguments = [&words[..], &["-poll-from=jobs".to_owned()]].concat();
        controller.start_with(&arguments).await?;
        let outcome = jobs_look(&test).await;
        controller.start_with(&words).await?;
        outcome?;
        let all = Api::<CronJob>::namespaced(test.client(), NAMESPACE);
        for left in cron_jobs(&test).await? {
            test.wait_until_gone(&all, &left.name_any()).await?;
        }
        // The permissions that remain suffice to remove the CronJobs and Jobs of polling.
        rights.remove(&test).await
    });
}
