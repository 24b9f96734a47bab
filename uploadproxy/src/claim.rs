//! What a claim says about uploads to it.

use std::collections::BTreeMap;

use api::annotations::{request, state};
use contract::go_bool;

use crate::error::Refusal;

/// A claim as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its version, to be told of the next one.
    pub version: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// It is filled by way of another claim, because its `dataSourceRef` names a VolumeUploadSource.
    pub is_populated: bool,
}

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its upload server takes requests.
    Ready {
        /// It wants files and not a disk.
        archive: bool,
    },
    /// It will be ready, or not.
    Wait,
}

impl Claim {
    /// It is complete.
    pub fn is_finished(&self) -> bool {
        self.get(state::POD_PHASE) == Some("Succeeded")
    }

    /// The claim that is filled in this one's stead, once that is known.
    pub fn prime(&self) -> Option<&str> {
        self.get(state::PRIME).filter(|name| !name.is_empty())
    }

    /// Whether something can be uploaded to this very claim.
    ///
    /// # Errors
    /// When nothing ever can.
    pub fn standing(&self) -> Result<Standing, Refusal> {
        if self.get(request::UPLOAD_TARGET).is_none() {
            return Err(Refusal::NoTarget);
        }
        if self.is_finished() {
            return Err(Refusal::Finished);
        }
        if !self.get(state::POD_READY).and_then(go_bool).unwrap_or(false) {
            return Ok(Standing::Wait);
        }
        match self.get(request::CONTENT_TYPE) {
            None | Some("" | "kubevirt") => Ok(Standing::Ready { archive: false }),
            Some("archive") => Ok(Standing::Ready { archive: true }),
            Some(other) => Err(Refusal::ContentType(other.to_owned())),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(annotations: &[(&str, &str)]) -> Claim {
        let annotations =
            annotations.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Claim { annotations, ..Claim::default() }
    }

    #[test]
    fn a_claim_stands_as_its_annotations_say() {
        let target = (request::UPLOAD_TARGET, "");
        let (ready, done) = ((state::POD_READY, "true"), (state::POD_PHASE, "Succeeded"));
        let content = |value| (request::CONTENT_TYPE, value);
        let no_target = "it is not an upload target";
        let is_ready = |archive| Ok(Standing::Ready { archive });
        for (annotations, expected) in [
            (vec![], Err(no_target)),
            (vec![ready], Err(no_target)),
            (vec![target], Ok(Standing::Wait)),
            (vec![target, (state::POD_READY, "false")], Ok(Standing::Wait)),
            (vec![target, (state::POD_READY, "perhaps")], Ok(Standing::Wait)),
            (vec![target, (state::POD_READY, "1")], is_ready(false)),
            (vec![target, ready], is_ready(false)),
            (vec![target, ready, (state::POD_PHASE, "Running")], is_ready(false)),
            (vec![target, ready, done], Err("it is complete")),
            (vec![target, ready, content("")], is_ready(false)),
            (vec![target, ready, content("kubevirt")], is_ready(false)),
            (vec![target, ready, content("archive")], is_ready(true)),
            (vec![target, content("tar")], Ok(Standing::Wait)),
            (vec![target, ready, content("tar")], Err("its content type \"tar\" is not known")),
        ] {
            let found = claim(&annotations).standing().map_err(|refusal| refusal.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{annotations:?}");
        }
    }
}
