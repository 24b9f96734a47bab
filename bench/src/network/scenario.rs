//! The networks that are simulated.

use std::time::Duration;

use crate::network::pipe::Link;

/// A network between importer and web server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// As tables name it.
    pub name: &'static str,
    pub link: Link,
    /// Bytes per second at most that the server sends on each connection, as stores and mirrors do.
    pub bytes_per_second_of_connection: Option<u64>,
}

impl Scenario {
    /// Bytes per second that the link carries.
    pub fn line_rate(&self) -> f64 {
        self.link.bits_per_second as f64 / 8.0
    }
}

/// All of them, in the order of the tables.
pub const ALL: [Scenario; 7] = [
    scenario("1 Gbit/s, 1 ms", 1, 0),
    scenario("1 Gbit/s, 10 ms", 10, 0),
    scenario("1 Gbit/s, 50 ms", 50, 0),
    scenario("1 Gbit/s, 10 ms, 0.1 % lost", 10, 10),
    scenario("1 Gbit/s, 50 ms, 0.1 % lost", 50, 10),
    scenario("1 Gbit/s, 10 ms, 1 % lost", 10, 100),
    Scenario {
        bytes_per_second_of_connection: Some(10 << 20),
        ..scenario("1 Gbit/s, 10 ms, 10 MiB/s per connection", 10, 0)
    },
];

const fn scenario(name: &'static str, round_trip_ms: u64, lost_of_10000: u64) -> Scenario {
    let link = Link {
        bits_per_second: 1_000_000_000,
        round_trip: Duration::from_millis(round_trip_ms),
        lost_of_10000,
    };
    Scenario { name, link, bytes_per_second_of_connection: None }
}
