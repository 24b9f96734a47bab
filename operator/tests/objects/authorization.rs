//! Who may do what: by the rules of Kubernetes' own authorization, of the roles and bindings that are installed.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::name;

/// An installation, with an answer to who may do what.
pub struct Installed(pub Vec<Value>);

/// `VERB GROUP/RESOURCE[/SUBRESOURCE] [NAMESPACE[/NAME]]`, the group empty for that of pods; without a namespace in none, which
/// for kinds that are in one means in all.
struct Request<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Request<'a> {
    fn parse(text: &'a str) -> Self {
        let mut words = text.split(' ');
        let (verb, what) = (words.next().unwrap(), words.next().unwrap());
        let (group, resource) = what.split_once('/').unwrap();
        let place = words.next().unwrap_or_default();
        let (namespace, name) = place.split_once('/').unwrap_or((place, ""));
        Self { verb, group, resource, namespace, name }
    }

    fn is_allowed_by(&self, rule: &PolicyRule) -> bool {
        let has = |all: Option<&Vec<String>>, desired: &str| {
            all.is_some_and(|all| all.iter().any(|one| one == desired || one == "*"))
        };
        let names = rule.resource_names.as_deref().unwrap_or_default();
        has(Some(&rule.verbs), self.verb)
            && has(rule.api_groups.as_ref(), self.group)
            && has(rule.resources.as_ref(), self.resource)
            && (names.is_empty() || names.iter().any(|name| name == self.name))
    }
}

impl Installed {
    pub fn role(&self, kind: &str, desired: &str) -> Option<Vec<PolicyRule>> {
        let role = self.0.iter().find(|role| role["kind"] == kind && name(role) == desired)?;
        Some(serde_json::from_value(role["rules"].clone()).unwrap())
    }

    /// The rules that are bound to a service account, and where they hold: everywhere if that is empty.
    pub fn rules_of(&self, account: &str) -> Vec<(String, PolicyRule)> {
        let is_bound = |binding: &&Value| {
            let subjects = binding["subjects"].as_array();
            subjects.into_iter().flatten().any(|subject| {
                subject["name"] == "system:authenticated"
                    || (subject["kind"] == "ServiceAccount" && subject["name"] == account)
            })
        };
        let bindings = self.0.iter().filter(|object| object["roleRef"].is_object());
        let mut all = Vec::new();
        for binding in bindings.filter(is_bound) {
            let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
            let role = &binding["roleRef"];
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            // That of kube-system comes with Kubernetes.
            let rules = self.role(&text(&role["kind"]), &text(&role["name"])).unwrap_or_default();
            all.extend(rules.into_iter().map(|rule| (namespace.to_owned(), rule)));
        }
        all
    }

    pub fn may(&self, account: &str, request: &str) -> bool {
        let request = Request::parse(request);
        self.rules_of(account).iter().any(|(namespace, rule)| {
            (namespace.is_empty() || namespace == request.namespace) && request.is_allowed_by(rule)
        })
    }

    pub fn role_allows(&self, role: &str, request: &str) -> bool {
        let request = Request::parse(request);
        self.role("ClusterRole", role).unwrap().iter().any(|rule| request.is_allowed_by(rule))
    }
}
