//! The image that a tag of an ImageStream names.

use api::v1beta1::DataImportCron;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};

use crate::engine::{Engine, Error};
use controller_core::data_import_cron::PollResult;
use controller_core::data_import_cron::image_stream::{self, ImageStream, NoImage};
use controller_core::meta;

pub(super) async fn poll_image_stream(
    engine: &Engine,
    cron: &DataImportCron,
) -> Result<PollResult, Error> {
    let source = cron.spec.template.spec.source.as_ref();
    let registry = source.and_then(|source| source.registry.as_ref());
    let text = registry.and_then(|registry| registry.image_stream.as_deref()).unwrap_or_default();
    let (name, _) = image_stream::parts(text);
    let namespace = meta::namespace(&cron.metadata);
    let kind = GroupVersionKind::gvk("image.openshift.io", "v1", "ImageStream");
    let resource = ApiResource::from_gvk_with_plural(&kind, "imagestreams");
    let api: Api<DynamicObject> = Api::namespaced_with(engine.api.client(), namespace, &resource);
    let found = api.get_opt(name).await.map_err(|source| Error::Api {
        action: "read",
        kind: "ImageStream".into(),
        name: format!("{namespace}/{name}"),
        source: Box::new(source),
    })?;
    let missing = || Error::ImageStream(NoImage::NoStream { stream: name.to_owned() });
    let found = found.ok_or_else(missing)?;
    // An object of another form names no tag, which is reported then.
    let stream: ImageStream = serde_json::from_value(found.data).unwrap_or_default();
    let item = image_stream::newest(&stream, text).map_err(Error::ImageStream)?;
    let reference = Some(item.docker_image_reference.clone());
    Ok(match engine.polls.found(cron, &item.image) {
        PollResult::Newest { digest, .. } => {
            PollResult::Newest { digest, image_stream_ref: reference }
        }
        other => other,
    })
}
