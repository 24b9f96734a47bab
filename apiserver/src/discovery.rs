//! Discovery documents of the aggregated API.

use api::names::{UPLOAD_GROUP, VERSION};
use serde_json::{Value, json};

/// `/`
pub fn paths() -> Value {
    let group = format!("/apis/{UPLOAD_GROUP}");
    let version = format!("{group}/{VERSION}");
    json!({ "paths": ["/apis", group, version, "/healthz", "/openapi/v2"] })
}

/// `/apis`
pub fn groups() -> Value {
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group()] })
}

/// `/apis/upload.cdi.kubevirt.io`
pub fn group() -> Value {
    let version =
        json!({ "groupVersion": format!("{UPLOAD_GROUP}/{VERSION}"), "version": VERSION });
    json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": UPLOAD_GROUP,
        "versions": [version],
        "preferredVersion": version,
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
    })
}

/// `/apis/upload.cdi.kubevirt.io/v1beta1`
pub fn resources() -> Value {
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{UPLOAD_GROUP}/{VERSION}"),
        "resources": [{
            "name": "uploadtokenrequests",
            "singularName": "uploadtokenrequest",
            "namespaced": true,
            "group": UPLOAD_GROUP,
            "version": VERSION,
            "kind": "UploadTokenRequest",
            "verbs": ["create"],
            "shortNames": ["utr", "utrs"],
        }],
    })
}

/// `/openapi/v2`
pub fn open_api() -> Value {
    let definition = "v1beta1.UploadTokenRequest";
    let reference = json!({ "$ref": format!("#/definitions/{definition}") });
    let path =
        format!("/apis/{UPLOAD_GROUP}/{VERSION}/namespaces/{{namespace}}/uploadtokenrequests");
    let kind = json!({ "group": UPLOAD_GROUP, "version": VERSION, "kind": "UploadTokenRequest" });
    let text = |description: &str| json!({ "type": "string", "description": description });
    let object = |description: &str, properties: Value| json!({ "type": "object", "description": description, "properties": properties });
    let mut request = object(
        "An UploadTokenRequest requests a token to upload to a PVC.",
        json!({
            "apiVersion": text("Group and version of the object."),
            "kind": text("Kind of the object."),
            "metadata": { "type": "object", "description": "Returned unchanged." },
            "spec": object(
                "The PVC to upload to.",
                json!({ "pvcName": text("Name of the PVC, in the namespace of the request.") }),
            ),
            "status": object(
                "The response.",
                json!({ "token": text("To be sent as Authorization: Bearer. Opaque to clients.") }),
            ),
        }),
    );
    request["required"] = json!(["spec"]);
    request["x-kubernetes-group-version-kind"] = json!([kind]);
    json!({
        "swagger": "2.0",
        "info": { "title": "CDI upload", "version": VERSION },
        "paths": {
            path: {
                "post": {
                    "description": "create an UploadTokenRequest",
                    "consumes": ["application/json"],
                    "produces": ["application/json"],
                    "operationId": "createNamespacedUploadTokenRequest",
                    "parameters": [
                        { "name": "namespace", "in": "path", "required": true, "type": "string", "uniqueItems": true },
                        { "name": "body", "in": "body", "required": true, "schema": reference },
                    ],
                    "responses": {
                        "200": { "description": "OK", "schema": reference },
                        "401": { "description": "Unauthorized" },
                    },
                    "x-kubernetes-action": "post",
                    "x-kubernetes-group-version-kind": kind,
                },
            },
        },
        "definitions": { definition: request },
    })
}
