//! Lines on standard error, one event each.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::Flags;

/// Libraries whose chatter is nobody's business. The client would log the whole text of an object that does not decode.
const QUIET: &str = "warn,kube_client::client=error";

/// Starts logging for `rooms`, the crates whose events are wanted. `-v=0` tells what happens, 1 and 2 also how far it is, 3
/// and more why. `-logging-format=json` makes each line an object with the members `timestamp`, `level`, `target` and
/// `message`.
pub fn init(flags: &Flags, rooms: &[&str]) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter(flags.verbosity(), rooms)))
        .with_ansi(false)
        .with_writer(std::io::stderr);
    // Only a second call can fail, and then there are logs already.
    let _ = match flags.logs_are_json() {
        true => subscriber.json().flatten_event(true).finish().try_init(),
        false => subscriber.finish().try_init(),
    };
}

fn filter(verbosity: u8, rooms: &[&str]) -> String {
    let level = if verbosity >= 3 { "debug" } else { "info" };
    let progress = if verbosity >= 1 { "info" } else { "off" };
    let rooms = rooms.iter().map(|room| format!("{room}={level},")).collect::<String>();
    format!("{rooms}progress={progress},{QUIET}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_is_asked_the_more_is_told() {
        assert_eq!(
            filter(0, &["a", "b"]),
            "a=info,b=info,progress=off,warn,kube_client::client=error"
        );
        assert_eq!(filter(1, &["a"]), "a=info,progress=info,warn,kube_client::client=error");
        assert_eq!(filter(3, &["a"]), "a=debug,progress=info,warn,kube_client::client=error");
        assert_eq!(filter(10, &[]), "progress=info,warn,kube_client::client=error");
    }
}
