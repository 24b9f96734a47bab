//! Workers of imports through a proxy.

use serde_json::{Value, json};

use super::world::TestCluster;
use super::{DONE, blank, places, reasons};

const CONFIG: &str = "cdiconfigs//config";
const COPY: &str = "import-proxy-cm-";

/// The ConfigMaps with a copy of the proxy's CA that the only worker waits for.
fn awaited(world: &TestCluster) -> Vec<String> {
    let [pod] = &places(world, "pods")[..] else { panic!("{:?}", places(world, "pods")) };
    let pod = world.fake.0.lock().unwrap().objects[pod].clone();
    let volumes = pod["spec"]["volumes"].as_array().unwrap().clone();
    let maps = volumes.iter().filter_map(|volume| volume["configMap"]["name"].as_str());
    maps.filter(|name| name.starts_with(COPY)).map(str::to_owned).collect()
}

/// A worker for a proxy with its own CA.
async fn world_with_worker() -> TestCluster {
    let mut world = TestCluster::new("Immediate", true);
    world.fake.change(CONFIG, |config| {
        config["spec"]["importProxy"] = json!({ "trustedCAProxy": "proxy-ca" });
    });
    world.work().await;
    let mut spec = blank();
    spec["source"] = json!({ "http": { "url": "http://h/a.img" } });
    world.volume("disk", spec);
    world.until_worker(DONE).await;
    world
}

#[tokio::test(start_paused = true)]
async fn worker_gets_a_copy_of_the_proxy_ca_once_it_exists() {
    let mut world = world_with_worker().await;
    let maps = awaited(&world);
    assert_eq!(maps.len(), 1);
    let copy = |world: &TestCluster| world.fake.get("configmaps", "vms", &maps[0]);
    assert_eq!(copy(&world), None);
    assert!(
        reasons(&world).contains(&"ErrResourceDoesntExist".to_owned()),
        "{:?}",
        reasons(&world)
    );
    world.fake.put(
        "configmaps",
        json!({ "metadata": { "name": "proxy-ca", "namespace": "cdi" }, "data": { "ca.pem": "PEM" } }),
    );
    reconcile_pending_worker(&mut world).await;
    assert_eq!(copy(&world).unwrap()["data"], json!({ "ca.pem": "PEM" }));
}

#[tokio::test(start_paused = true)]
async fn worker_does_not_wait_for_a_proxy_ca_that_is_no_longer_configured() {
    let mut world = world_with_worker().await;
    assert_eq!(awaited(&world).len(), 1);
    world.fake.change(CONFIG, |config| config["spec"]["importProxy"] = Value::Null);
    reconcile_pending_worker(&mut world).await;
    assert_eq!(awaited(&world), [""; 0]);
    world.until("disk", "Succeeded", DONE).await;
}

/// A worker that does not start is reconciled whenever it changes.
async fn reconcile_pending_worker(world: &mut TestCluster) {
    world.work().await;
    for place in places(world, "pods") {
        world.fake.change(&place, |pod| pod["status"] = json!({ "phase": "Pending" }));
    }
    world.work().await;
}

const SECRET: &str = "importer:s3cret";
const URL: &str = "http://importer:s3cret@proxy.example:3128";
const SHOWN: &str = "http://proxy.example:3128";

/// The variable `http_proxy` of the only worker.
async fn proxy_of_worker(world: &mut TestCluster) -> String {
    let mut spec = blank();
    spec["source"] = json!({ "http": { "url": "http://h/a.img" } });
    world.volume("disk", spec);
    world.until_worker(DONE).await;
    let [pod] = &places(world, "pods")[..] else { panic!("{:?}", places(world, "pods")) };
    let pod = world.fake.0.lock().unwrap().objects[pod].clone();
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let proxy = env.iter().find(|one| one["name"] == "http_proxy").expect("a proxy");
    proxy["value"].as_str().unwrap().to_owned()
}

/// Every user of the cluster may read the CDIConfig.
#[tokio::test(start_paused = true)]
async fn platform_proxy_password_reaches_only_workers() {
    let mut world = TestCluster::new("Immediate", true);
    world.fake.put(
        "proxies",
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": { "name": "cluster" },
            "status": { "httpProxy": URL },
        }),
    );
    world.work().await;
    let config = world.fake.0.lock().unwrap().objects[CONFIG].clone();
    assert_eq!(config["status"]["importProxy"]["HTTPProxy"], SHOWN);
    assert!(!config.to_string().contains(SECRET), "{config}");
    assert_eq!(proxy_of_worker(&mut world).await, URL);
    let events = &world.fake.0.lock().unwrap().events;
    assert!(!json!(events).to_string().contains(SECRET));
}

#[tokio::test(start_paused = true)]
async fn proxy_password_in_the_cdi_object_is_not_copied_to_the_cdi_config() {
    let mut world = TestCluster::new("Immediate", true);
    world.fake.put(
        "cdis",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
            "metadata": { "name": "cdi", "annotations": { "cdi.kubevirt.io/configAuthority": "" } },
            "spec": { "config": { "importProxy": { "HTTPProxy": URL } } },
        }),
    );
    world.work().await;
    let config = world.fake.0.lock().unwrap().objects[CONFIG].clone();
    assert_eq!(config["spec"]["importProxy"]["HTTPProxy"], SHOWN);
    assert_eq!(config["status"]["importProxy"]["HTTPProxy"], SHOWN);
    assert!(!config.to_string().contains(SECRET), "{config}");
    assert_eq!(proxy_of_worker(&mut world).await, URL);
    assert!(!reasons(&world).contains(&"ProxyCredentialsVisible".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn proxy_password_in_the_cdi_config_causes_a_warning() {
    let mut world = TestCluster::new("Immediate", true);
    world.fake.change(CONFIG, |config| {
        config["spec"]["importProxy"] = json!({ "HTTPProxy": URL });
    });
    world.work().await;
    let config = world.fake.0.lock().unwrap().objects[CONFIG].clone();
    assert_eq!(config["status"]["importProxy"]["HTTPProxy"], SHOWN);
    assert!(reasons(&world).contains(&"ProxyCredentialsVisible".to_owned()));
    assert_eq!(proxy_of_worker(&mut world).await, URL);
}
