//! Conditions, with the heartbeat that those of Kubernetes do not have.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status_time;

/// A condition of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Name of the condition, such as Ready.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// When the status changed last.
    #[serde(
        default,
        deserialize_with = "status_time::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_transition_time: Option<Time>,
    /// When status, reason or message changed last.
    #[serde(
        default,
        deserialize_with = "status_time::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_heartbeat_time: Option<Time>,
    /// The reason, in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
