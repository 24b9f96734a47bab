//! Whether the operator's version replaces the installed one.

use semver::Version;

/// What installed the version that the CDI object reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installer {
    ThisOperator,
    /// Such as upstream CDI's operator. Its numbers do not compare with ours.
    OtherOperator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionStep {
    Current,
    Upgrade,
    /// To an older minor version.
    Downgrade,
}

/// Compares the operator's version with `observed`, the version whose installation was completed.
///
/// Versions that are not semantic versions are replaced without a comparison. An older patch release of the same minor
/// version counts as an upgrade: it is how an administrator goes back.
pub fn version_step(target: &str, observed: Option<&str>, installer: Installer) -> VersionStep {
    let Some(observed) = observed.filter(|observed| !observed.is_empty()) else {
        return VersionStep::Upgrade;
    };
    if installer == Installer::OtherOperator {
        return VersionStep::Upgrade;
    }
    if target == observed {
        return VersionStep::Current;
    }
    let parse = |text: &str| Version::parse(text.strip_prefix('v').unwrap_or(text)).ok();
    let (Some(target), Some(observed)) = (parse(target), parse(observed)) else {
        return VersionStep::Upgrade;
    };
    match target.cmp_precedence(&observed) {
        std::cmp::Ordering::Equal => VersionStep::Current,
        std::cmp::Ordering::Greater => VersionStep::Upgrade,
        std::cmp::Ordering::Less => {
            if (target.major, target.minor) == (observed.major, observed.minor) {
                VersionStep::Upgrade
            } else {
                VersionStep::Downgrade
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_step_decision_table() {
        use Installer::{OtherOperator, ThisOperator};
        use VersionStep::{Current, Downgrade, Upgrade};
        for (case, target, observed, installer, expected) in [
            ("same text", "dev", Some("dev"), ThisOperator, Current),
            ("nothing observed", "1.0.0", None, ThisOperator, Upgrade),
            ("empty", "1.0.0", Some(""), ThisOperator, Upgrade),
            ("newer", "1.1.0", Some("1.0.9"), ThisOperator, Upgrade),
            ("prefix", "v1.1.0", Some("1.1.0"), ThisOperator, Current),
            ("build metadata", "1.1.0+b", Some("1.1.0+a"), ThisOperator, Current),
            ("older patch", "1.1.0", Some("v1.1.2"), ThisOperator, Upgrade),
            ("older pre-release", "1.1.0-rc1", Some("1.1.0"), ThisOperator, Upgrade),
            ("older minor", "1.0.9", Some("1.1.0"), ThisOperator, Downgrade),
            ("older major", "1.9.0", Some("2.0.0"), ThisOperator, Downgrade),
            ("target is no semantic version", "main", Some("9.0.0"), ThisOperator, Upgrade),
            ("observed is none", "1.0.0", Some("9.0"), ThisOperator, Upgrade),
            ("upstream, newer number", "0.2.0", Some("v1.62.0"), OtherOperator, Upgrade),
            ("upstream, same number", "1.62.0", Some("1.62.0"), OtherOperator, Upgrade),
        ] {
            assert_eq!(version_step(target, observed, installer), expected, "{case}");
        }
    }
}
