//! Many clones of one golden image at once.

use e2e::volume;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::world::{WAYS, golden, run, was_made};

const CLONES: usize = 20;

#[test]
fn twenty_clones_of_one_golden_image_succeed() {
    run("many", async |test| {
        let far = test.other_namespace().await?;
        golden(&far, &[("golden", "csi", "Block")]).await?;
        let golden = json!({ "pvc": { "namespace": far.namespace(), "name": "golden" } });
        far.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": "golden" }, "spec": { "source": golden },
        }))
        .await?;
        let source =
            json!({ "kind": "DataSource", "namespace": far.namespace(), "name": "golden" });
        let names: Vec<_> = (0..CLONES).map(|number| format!("clone-{number}")).collect();
        let way = |number: usize| WAYS[number % WAYS.len()];
        for (number, name) in names.iter().enumerate() {
            let mut object = volume(name, way(number).1, "Block", Value::Null);
            let spec = &mut object["spec"];
            spec["sourceRef"] = source.clone();
            spec.as_object_mut().map(|spec| spec.remove("source"));
            test.apply(object).await?;
        }
        let test_here = &*test;
        let all = names
            .iter()
            .enumerate()
            .map(|(number, name)| async move { was_made(test_here, name, way(number).0).await });
        try_join_all(all).await?;
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        test.clones_leave(&names, &[]).await?;
        far.clones_leave(&["golden"], &[]).await
    });
}
