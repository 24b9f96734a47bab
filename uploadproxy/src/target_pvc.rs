//! The upload state of a PVC, from its annotations.

use std::collections::BTreeMap;

use api::annotations::{request, state};
use contract::go_bool;

use crate::error::UploadRefusal;

/// The parts of a PVC that uploads need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetPvc {
    pub namespace: String,
    pub name: String,
    /// Resource version, to watch from.
    pub version: String,
    pub annotations: BTreeMap<String, String>,
    /// Its `dataSourceRef` names a VolumeUploadSource, so a prime PVC is filled.
    pub is_populated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadReadiness {
    /// The upload server accepts requests.
    Ready {
        /// Content type `archive`.
        archive: bool,
    },
    /// Not ready yet.
    Wait,
}

impl TargetPvc {
    /// The upload is complete.
    pub fn is_finished(&self) -> bool {
        self.get(state::POD_PHASE) == Some("Succeeded")
    }

    /// The prime PVC, once known.
    pub fn prime(&self) -> Option<&str> {
        self.get(state::PRIME).filter(|name| !name.is_empty())
    }

    /// Whether this PVC itself accepts an upload now.
    ///
    /// # Errors
    /// When it never will.
    pub fn upload_readiness(&self) -> Result<UploadReadiness, UploadRefusal> {
        if self.get(request::UPLOAD_TARGET).is_none() {
            return Err(UploadRefusal::NoTarget);
        }
        if self.is_finished() {
            return Err(UploadRefusal::Finished);
        }
        if !self.get(state::POD_READY).and_then(go_bool).unwrap_or(false) {
            return Ok(UploadReadiness::Wait);
        }
        match self.get(request::CONTENT_TYPE) {
            None | Some("" | "kubevirt") => Ok(UploadReadiness::Ready { archive: false }),
            Some("archive") => Ok(UploadReadiness::Ready { archive: true }),
            Some(other) => Err(UploadRefusal::ContentType(other.to_owned())),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(annotations: &[(&str, &str)]) -> TargetPvc {
        let annotations =
            annotations.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        TargetPvc { annotations, ..TargetPvc::default() }
    }

    #[test]
    fn readiness_decision_table() {
        let target = (request::UPLOAD_TARGET, "");
        let (ready, done) = ((state::POD_READY, "true"), (state::POD_PHASE, "Succeeded"));
        let content = |value| (request::CONTENT_TYPE, value);
        let no_target = "it is not an upload target";
        let is_ready = |archive| Ok(UploadReadiness::Ready { archive });
        for (annotations, expected) in [
            (vec![], Err(no_target)),
            (vec![ready], Err(no_target)),
            (vec![target], Ok(UploadReadiness::Wait)),
            (vec![target, (state::POD_READY, "false")], Ok(UploadReadiness::Wait)),
            (vec![target, (state::POD_READY, "perhaps")], Ok(UploadReadiness::Wait)),
            (vec![target, (state::POD_READY, "1")], is_ready(false)),
            (vec![target, ready], is_ready(false)),
            (vec![target, ready, (state::POD_PHASE, "Running")], is_ready(false)),
            (vec![target, ready, done], Err("the upload is complete already")),
            (vec![target, ready, content("")], is_ready(false)),
            (vec![target, ready, content("kubevirt")], is_ready(false)),
            (vec![target, ready, content("archive")], is_ready(true)),
            (vec![target, content("tar")], Ok(UploadReadiness::Wait)),
            (vec![target, ready, content("tar")], Err("its content type \"tar\" is unknown")),
        ] {
            let found =
                claim(&annotations).upload_readiness().map_err(|refusal| refusal.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{annotations:?}");
        }
    }
}
