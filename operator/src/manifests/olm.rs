//! The bundle of the Operator Lifecycle Manager: what `deploy/operator/cdi-operator.yaml` installs, as a ClusterServiceVersion.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Images, Settings, operator_deployment, release, rights};

/// Of the package in a catalog.
const PACKAGE: &str = "containerized-data-importer";
const CHANNEL: &str = "stable";
const DISPLAY_NAME: &str = "Containerized Data Importer";
const SUMMARY: &str = "Imports, uploads and clones disk images of virtual machines to PVCs";
const DESCRIPTION: &str = "\
Fills PersistentVolumeClaims with disk images of virtual machines: imports from HTTP servers, object stores, container
registries, oVirt and VMware, uploads, and clones of other volumes.

After the installation, create a CDI object to deploy the controllers and servers. Before you uninstall the operator, delete
that object.
";
const SOURCE: &str = "https://github.com/kubevirt/containerized-data-importer";
/// CEL rules of CRDs and `unhealthyPodEvictionPolicy` are stable from here on.
const KUBERNETES_MIN: &str = "1.31.0";

/// The files of the bundle and their objects.
pub(super) fn files(settings: &Settings, version: &str) -> Vec<(&'static str, Value)> {
    let service_version = cluster_service_version(settings, version);
    vec![
        ("olm/manifests/cdi-operator.clusterserviceversion.yaml", service_version),
        ("olm/manifests/cdis.cdi.kubevirt.io.crd.yaml", release::own_crd()),
        ("olm/metadata/annotations.yaml", json!({ "annotations": annotations() })),
    ]
}

pub(super) const IMAGE_FILE: &str = "olm/bundle.Dockerfile";

/// Builds the image of the bundle.
pub(super) fn image_file() -> String {
    let mut text = "FROM scratch\n".to_owned();
    for (name, value) in annotations().as_object().into_iter().flatten() {
        let _ = writeln!(text, "LABEL {name}={}", value.as_str().unwrap_or_default());
    }
    text + "COPY manifests /manifests/\nCOPY metadata /metadata/\n"
}

fn annotations() -> Value {
    let prefix = "operators.operatorframework.io.bundle";
    json!({
        (format!("{prefix}.mediatype.v1")): "registry+v1",
        (format!("{prefix}.manifests.v1")): "manifests/",
        (format!("{prefix}.metadata.v1")): "metadata/",
        (format!("{prefix}.package.v1")): PACKAGE,
        (format!("{prefix}.channels.v1")): CHANNEL,
        (format!("{prefix}.channel.default.v1")): CHANNEL,
    })
}

fn cluster_service_version(settings: &Settings, version: &str) -> Value {
    let deployment = operator_deployment(settings, version);
    let example = release::installation(settings);
    let roles = rights::installer(settings);
    // Those of all roles: OLM creates roles of its own.
    let permissions = |kind: &str| {
        let roles = roles.iter().filter(|role| role["kind"] == kind);
        let rules: Vec<_> =
            roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default()).collect();
        json!([{ "serviceAccountName": "cdi-operator", "rules": rules }])
    };
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("cdioperator.v{version}"),
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": format!("{:#}", json!([example])),
                "capabilities": "Seamless Upgrades",
                "categories": "Storage",
                "containerImage": settings.operator_image,
                "description": SUMMARY,
                "olm.skipRange": format!(">=0.0.0 <{version}"),
                "operatorframework.io/suggested-namespace": settings.namespace,
                "repository": SOURCE,
            },
        },
        "spec": {
            "displayName": DISPLAY_NAME,
            "description": DESCRIPTION,
            "version": version,
            "minKubeVersion": KUBERNETES_MIN,
            "maturity": "stable",
            "keywords": ["CDI", "Virtualization", "Storage", "KubeVirt"],
            "maintainers": [{ "name": "KubeVirt project", "email": "kubevirt-dev@googlegroups.com" }],
            "provider": { "name": "KubeVirt project" },
            "links": [{ "name": "Source code", "url": SOURCE }],
            "installModes": install_modes(),
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": permissions("ClusterRole"),
                    "permissions": permissions("Role"),
                    "deployments": [{
                        "name": deployment["metadata"]["name"],
                        "label": deployment["metadata"]["labels"],
                        "spec": deployment["spec"],
                    }],
                },
            },
            "customresourcedefinitions": { "owned": [owned()] },
            "relatedImages": related_images(settings),
        },
    })
}

/// In its own namespace only: it installs there, and for others OLM would grant the permissions of that namespace in all
/// namespaces, Secrets included.
fn install_modes() -> Value {
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    modes.map(|mode| json!({ "type": mode, "supported": mode == "OwnNamespace" })).into()
}

fn owned() -> Value {
    let status = |path: &str, name: &str, description: &str, descriptor: &str| {
        json!({
            "path": path, "displayName": name, "description": description,
            "x-descriptors": [format!("urn:alm:descriptor:{descriptor}")],
        })
    };
    json!({
        "name": release::OWN_CRD,
        "version": api::names::VERSION,
        "kind": "CDI",
        "displayName": "CDI deployment",
        "description": "The installation: where its programs run, and the settings of the cluster",
        "specDescriptors": [status(
            "imagePullPolicy",
            "Image pull policy",
            "When nodes pull the images",
            "io.kubernetes:imagePullPolicy",
        )],
        "statusDescriptors": [
            status("phase", "Phase", "State of the installation", "io.kubernetes.phase"),
            status("conditions", "Conditions", "Reasons of that state", "io.kubernetes.conditions"),
            status("observedVersion", "Version", "The installed version", "text"),
        ],
    })
}

/// All images that the operator or a pod of the installation runs, each once.
fn related_images(settings: &Settings) -> Value {
    let Images {
        controller,
        importer,
        importer_vddk,
        cloner,
        apiserver,
        upload_server,
        upload_proxy,
        ovirt_populator,
    } = &settings.images;
    let mut all = vec![
        ("cdi-operator", &settings.operator_image),
        ("cdi-controller", controller),
        ("cdi-importer", importer),
        ("cdi-cloner", cloner),
        ("cdi-apiserver", apiserver),
        ("cdi-uploadserver", upload_server),
        ("cdi-uploadproxy", upload_proxy),
    ];
    all.extend(importer_vddk.as_ref().map(|image| ("cdi-importer-vddk", image)));
    if ovirt_populator != importer {
        all.push(("cdi-ovirt-populator", ovirt_populator));
    }
    all.into_iter().map(|(name, image)| json!({ "name": name, "image": image })).collect()
}
