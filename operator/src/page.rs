//! What monitoring reads of the operator.

use std::sync::{Mutex, PoisonError};

use api::conditions::{AVAILABLE, status};
use api::v1beta1::Cdi;
use auth::Floor;

use crate::Look;

/// Whether an installation can be used, as its CDI object says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// There is no such object yet, or nobody has said so on it.
    #[default]
    Unknown,
    /// It is said that it cannot.
    NotReady,
    /// It is said that it can.
    Ready,
}

impl Readiness {
    /// Of the CDI objects that there are: there should be one.
    pub fn of(installations: &[Cdi]) -> Self {
        let conditions =
            installations.iter().filter_map(|cdi| cdi.status.as_ref()?.conditions.as_ref());
        let available = conditions.flatten().filter(|condition| condition.type_ == AVAILABLE);
        let said: Vec<_> = available.map(|condition| condition.status.as_str()).collect();
        if said.contains(&status::TRUE) {
            Self::Ready
        } else if said.contains(&status::FALSE) {
            Self::NotReady
        } else {
            Self::Unknown
        }
    }

    /// As monitoring knows it.
    const fn number(self) -> i8 {
        match self {
            Self::Unknown => -1,
            Self::NotReady => 0,
            Self::Ready => 1,
        }
    }
}

/// What all looks came to.
#[derive(Debug, Default)]
pub struct Shown(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    made: usize,
    readiness: Readiness,
    floor: Floor,
}

impl Shown {
    /// Another look is done.
    pub fn take(&self, look: Look) {
        let Look { made, is_complete: _, readiness, floor } = look;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.made += made;
        state.readiness = readiness;
        if let Some(floor) = floor {
            state.floor = floor;
        }
    }

    /// The least of TLS that the page is served with.
    pub fn floor(&self) -> Floor {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).floor.clone()
    }

    /// The page, in the text format of Prometheus.
    pub fn text(&self) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let made = "kubevirt_cdi_operator_certificates_made_total";
        let ready = "kubevirt_cdi_cr_ready";
        format!(
            "# HELP {made} Certificates made since the start\n# TYPE {made} counter\n{made} {}\n\
             # HELP {ready} Whether CDI can be used: 1, 0, or -1 where nobody says\n# TYPE {ready} gauge\n{ready} {}\n",
            state.made,
            state.readiness.number()
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cdi(status: Value) -> Cdi {
        let cdi = json!({ "metadata": { "name": "cdi" }, "spec": {}, "status": status });
        serde_json::from_value(cdi).unwrap()
    }

    fn available(status: &str) -> Value {
        json!({ "conditions": [
            { "type": "Progressing", "status": "True" }, { "type": "Available", "status": status },
        ] })
    }

    #[test]
    fn an_installation_is_ready_if_somebody_says_so() {
        for (status, expected) in [
            (json!({}), -1),
            (json!({ "phase": "Deployed" }), -1),
            (available("Unknown"), -1),
            (available("False"), 0),
            (available("True"), 1),
        ] {
            assert_eq!(Readiness::of(&[cdi(status.clone())]).number(), expected, "{status}");
        }
        assert_eq!(Readiness::of(&[]).number(), -1);
    }

    #[test]
    fn the_page_shows_what_all_looks_came_to() {
        let shown = Shown::default();
        let line = |name: &str| {
            let text = shown.text();
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            found.unwrap().to_owned()
        };
        assert_eq!(line("kubevirt_cdi_cr_ready"), "-1");
        let other = Floor::parse("VersionTLS13", "").unwrap();
        let look =
            |made, floor| Look { made, is_complete: true, readiness: Readiness::Ready, floor };
        shown.take(look(3, Some(other.clone())));
        shown.take(look(2, None));
        assert_eq!(line("kubevirt_cdi_operator_certificates_made_total"), "5");
        assert_eq!(line("kubevirt_cdi_cr_ready"), "1");
        assert_eq!(shown.floor(), other, "settings that could not be read are not other settings");
    }
}
