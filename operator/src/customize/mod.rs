//! `spec.customizeComponents`: patches of the administrator on deployed objects.
//!
//! A patch that cannot be applied changes nothing: its object keeps the other patches, and the failure is reported.

mod json;
mod list_keys;
mod strategic;

use api::v1beta1::{ComponentFlags, CustomizeComponents, CustomizePatch};
use serde_json::{Value, json as value};
use sha1::{Digest, Sha1};

/// Identifies the customization that an object was patched with.
const IDENTIFIER: &str = "cdi.kubevirt.io/customizer-identifier";
/// Kinds that may be patched.
const KINDS: [&str; 5] = [
    "Deployment",
    "Service",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
];

/// A patch of the CDI object that was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot customize {object}")]
pub struct DesiredError {
    /// `Deployment cdi-apiserver`; the resource of the patch if it is of no object.
    pub object: String,
    #[source]
    pub cause: PatchError,
}

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("patch {number} has the type {got:?}: expected json, merge or strategic")]
    Type { number: usize, got: String },
    #[error("cannot parse patch {number}: {cause}")]
    Parse { number: usize, cause: String },
    #[error("cannot apply patch {number}: {cause}")]
    Apply { number: usize, cause: String },
    #[error("patch {number} changes {field}, which identifies the object")]
    Identity { number: usize, field: &'static str },
    #[error("patch {number} makes the object larger than {SIZE_MAX} bytes")]
    Size { number: usize },
}

/// A copy operation doubles its source, so a short patch could fill the memory. etcd stores 1.5 MiB.
const SIZE_MAX: usize = 1 << 20;

/// A parsed patch.
enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

/// Which objects a patch is of.
struct Target<'a> {
    kind: &'a str,
    name: &'a str,
}

impl Target<'_> {
    fn matches(&self, object: &Value) -> bool {
        let matches = |pattern: &str, value: &Value| {
            pattern == "*"
                || value.as_str().is_some_and(|value| value.eq_ignore_ascii_case(pattern))
        };
        matches(self.kind, &object["kind"]) && matches(self.name, &object["metadata"]["name"])
    }
}

/// Applies patches and flags, in this order, to the objects that they name.
pub(crate) fn customize(
    objects: &mut [Value],
    customizations: &CustomizeComponents,
) -> Vec<DesiredError> {
    let identifier = identifier(customizations);
    let patches = customizations.patches.as_deref().unwrap_or_default();
    let mut errors = Vec::new();
    for (index, patch) in patches.iter().enumerate() {
        let CustomizePatch { resource_name: name, resource_type: kind, patch, type_ } = patch;
        let number = index + 1;
        match Patch::parse(type_, patch, number) {
            Ok(parsed) => {
                let target = Target { kind, name };
                errors.extend(patch_objects(objects, &target, &parsed, number, &identifier));
            }
            Err(cause) => errors.push(DesiredError { object: format!("{kind} {name}"), cause }),
        }
    }
    let flags = customizations.flags.iter().flat_map(flag_patches);
    for (number, (name, patch)) in (patches.len() + 1..).zip(flags) {
        let target = Target { kind: "Deployment", name };
        errors.extend(patch_objects(objects, &target, &patch, number, &identifier));
    }
    errors
}

fn patch_objects(
    objects: &mut [Value],
    target: &Target<'_>,
    patch: &Patch,
    number: usize,
    identifier: &str,
) -> Vec<DesiredError> {
    let is_patchable = |object: &&mut Value| {
        KINDS.iter().any(|kind| object["kind"] == *kind) && target.matches(object)
    };
    let mut errors = Vec::new();
    for object in objects.iter_mut().filter(is_patchable) {
        let mut patched = object.clone();
        match patch.apply(&mut patched, number).and_then(|()| check(object, &patched, number)) {
            Ok(()) => {
                patched["metadata"]["annotations"][IDENTIFIER] = identifier.into();
                *object = patched;
            }
            Err(cause) => errors.push(DesiredError { object: title(object), cause }),
        }
    }
    errors
}

/// `Deployment cdi-apiserver`
fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// A patch changes an object; it makes no other one of it. What is left must be written as the API expects it.
fn check(before: &Value, after: &Value, number: usize) -> Result<(), PatchError> {
    let identity: [(&'static str, fn(&Value) -> &Value); 4] = [
        ("apiVersion", |object| &object["apiVersion"]),
        ("kind", |object| &object["kind"]),
        ("metadata.name", |object| &object["metadata"]["name"]),
        ("metadata.namespace", |object| &object["metadata"]["namespace"]),
    ];
    for (field, value) in identity {
        if value(before) != value(after) {
            return Err(PatchError::Identity { number, field });
        }
    }
    let annotations = &after["metadata"]["annotations"];
    if !(annotations.is_object() || annotations.is_null()) {
        let cause = "metadata.annotations is not an object".to_owned();
        return Err(PatchError::Apply { number, cause });
    }
    let size = after.to_string().len();
    if size > SIZE_MAX {
        return Err(PatchError::Size { number });
    }
    Ok(())
}

impl Patch {
    fn parse(type_: &str, text: &str, number: usize) -> Result<Self, PatchError> {
        let failed =
            |error: serde_json::Error| PatchError::Parse { number, cause: error.to_string() };
        let object = || match serde_json::from_str(text).map_err(failed)? {
            value @ Value::Object(_) => Ok(value),
            _ => Err(PatchError::Parse { number, cause: "expected a JSON object".into() }),
        };
        match type_ {
            "json" => serde_json::from_str(text).map(Self::Json).map_err(failed),
            "merge" => object().map(Self::Merge),
            "strategic" => object().map(Self::Strategic),
            other => Err(PatchError::Type { number, got: other.to_owned() }),
        }
    }

    fn apply(&self, object: &mut Value, number: usize) -> Result<(), PatchError> {
        let failed = |cause| PatchError::Apply { number, cause };
        match self {
            Self::Json(patch) => {
                json::apply(object, patch, SIZE_MAX).map_err(|error| match error {
                    json::Error::Size => PatchError::Size { number },
                    json::Error::Failed(cause) => failed(cause),
                })
            }
            Self::Merge(patch) => {
                json_patch::merge(object, patch);
                Ok(())
            }
            Self::Strategic(patch) => {
                strategic::merge(object, patch).map_err(|error| failed(error.to_string()))
            }
        }
    }
}

/// SHA-1 of the customization, as hexadecimal digits. It distinguishes customizations and protects nothing.
fn identifier(customizations: &CustomizeComponents) -> String {
    let text = serde_json::to_vec(customizations).expect("maps of texts are JSON");
    Sha1::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A patch of the arguments of each Deployment that has flags. In the order of their names: upstream CDI's order differed from pass
/// to pass, which restarted the pods each time.
fn flag_patches(flags: &ComponentFlags) -> Vec<(&'static str, Patch)> {
    use api::labels::component::{APISERVER, DEPLOYMENT, UPLOADPROXY};
    let ComponentFlags { api, controller, upload_proxy } = flags;
    [(APISERVER, api), (DEPLOYMENT, controller), (UPLOADPROXY, upload_proxy)]
        .into_iter()
        .filter_map(|(name, flags)| Some((name, flags.as_ref().filter(|flags| !flags.is_empty())?)))
        .map(|(name, flags)| {
            let pair = |(flag, text): (&String, &String)| {
                let flag = format!("-{}", flag.to_lowercase());
                std::iter::once(flag).chain(Some(text.clone()).filter(|text| !text.is_empty()))
            };
            let arguments: Vec<String> = flags.iter().flat_map(pair).collect();
            let container = value!([{ "name": name, "args": arguments }]);
            let pod = value!({ "spec": { "containers": container } });
            (name, Patch::Strategic(value!({ "spec": { "template": pod } })))
        })
        .collect()
}

#[cfg(test)]
mod tests;
