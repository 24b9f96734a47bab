//! Lines on standard error, one event each.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::Flags;

/// Default filter for libraries. The Kubernetes client would log the whole text of an object that does not decode.
const LIBRARIES: &str = "warn,kube_client::client=error";

/// Starts logging of `crates`. `-v=0` logs at info, 1 and 2 add progress, 3 and more is debug. `-logging-format=json` writes
/// each line as an object with the members `timestamp`, `level`, `target` and `message`.
pub fn init(flags: &Flags, crates: &[&str]) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter(flags.verbosity(), crates)))
        .with_ansi(false)
        .with_writer(std::io::stderr);
    // Fails only if logging was started before.
    let _ = if flags.logs_are_json() {
        subscriber.json().flatten_event(true).finish().try_init()
    } else {
        subscriber.finish().try_init()
    };
}

fn filter(verbosity: u8, crates: &[&str]) -> String {
    let level = if verbosity >= 3 { "debug" } else { "info" };
    let progress = if verbosity >= 1 { "info" } else { "off" };
    let crates = crates.iter().map(|name| format!("{name}={level},")).collect::<String>();
    format!("{crates}progress={progress},{LIBRARIES}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_selects_the_log_levels() {
        assert_eq!(
            filter(0, &["a", "b"]),
            "a=info,b=info,progress=off,warn,kube_client::client=error"
        );
        assert_eq!(filter(1, &["a"]), "a=info,progress=info,warn,kube_client::client=error");
        assert_eq!(filter(3, &["a"]), "a=debug,progress=info,warn,kube_client::client=error");
        assert_eq!(filter(10, &[]), "progress=info,warn,kube_client::client=error");
    }
}
