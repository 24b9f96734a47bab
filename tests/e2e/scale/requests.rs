//! The requests of all clients to an API server, as its metrics count them.

use std::ops::Sub;

use anyhow::{Context, Result};
use kube::Client;

/// One line for each verb, kind of object and status code.
const COUNTER: &str = "apiserver_request_total{";
const READS: [&str; 2] = ["GET", "LIST"];
const WRITES: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
/// They come by the clock, or are no writes.
const LEFT_OUT: [&str; 5] =
    ["leases", "subjectaccessreviews", "tokenreviews", "selfsubjectaccessreviews", "nodes"];

/// So many requests, of all programs of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Watches not counted.
    pub reads: u64,
    /// Events not counted.
    pub writes: u64,
    /// Events created and changed.
    pub events: u64,
}

impl Requests {
    /// Those until now.
    pub async fn read(client: &Client) -> Result<Self> {
        let page = http::Request::get("/metrics").body(Vec::new())?;
        let page = client.request_text(page).await.context("the API server serves no metrics")?;
        Ok(Self::on(&page))
    }

    fn on(page: &str) -> Self {
        let mut sum = Self::default();
        for line in page.lines().filter_map(|line| line.strip_prefix(COUNTER)) {
            let (verb, kind) = (label(line, "verb"), label(line, "resource"));
            let is_token = label(line, "subresource") == "token";
            if LEFT_OUT.contains(&kind) || is_token {
                continue;
            }
            let count = line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
            let count = count.unwrap_or_default() as u64;
            if READS.contains(&verb) {
                sum.reads += count;
            } else if WRITES.contains(&verb) && kind == "events" {
                sum.events += count;
            } else if WRITES.contains(&verb) {
                sum.writes += count;
            }
        }
        sum
    }
}

impl Sub for Requests {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            events: self.events - before.events,
        }
    }
}

/// One of `a="b",c="d"`.
fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let mut parts = labels.split('"');
    while let Some(key) = parts.next() {
        let value = parts.next().unwrap_or_default();
        if key.trim_start_matches(',').strip_suffix('=') == Some(name) {
            return value;
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_kind_and_status() {
        let page = "\
# HELP apiserver_request_total Counter of requests
apiserver_request_total{code=\"200\",resource=\"pods\",subresource=\"\",verb=\"GET\"} 3
apiserver_request_total{code=\"200\",resource=\"pods\",subresource=\"\",verb=\"WATCH\"} 5
apiserver_request_total{code=\"201\",resource=\"events\",subresource=\"\",verb=\"POST\"} 7
apiserver_request_total{code=\"200\",resource=\"pods\",subresource=\"status\",verb=\"PATCH\"} 1.1e+01
apiserver_request_total{code=\"409\",resource=\"pods\",subresource=\"\",verb=\"DELETE\"} 1
apiserver_request_total{code=\"200\",resource=\"leases\",subresource=\"\",verb=\"PUT\"} 100
apiserver_request_total{code=\"201\",resource=\"serviceaccounts\",subresource=\"token\",verb=\"POST\"} 9
";
        assert_eq!(Requests::on(page), Requests { reads: 3, writes: 12, events: 7 });
    }
}
