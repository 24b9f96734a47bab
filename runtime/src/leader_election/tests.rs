//! Elections at an API server that holds one lease, which responds late, or not at all.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// How the next requests fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    NoResponse,
    Refused,
    /// The request is carried out, and its response does not arrive.
    ResponseLost,
}

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    requests: Vec<Method>,
    /// So many requests.
    fault: Option<(Fault, usize)>,
    written: Option<mpsc::Sender<()>>,
}

#[derive(Clone, Default)]
struct LeaseApi(Arc<Mutex<State>>);

impl LeaseApi {
    fn election(&self, identity: &str) -> Election {
        Election::new(Client::new(self.clone(), "cdi"), "cdi", "lease", identity.to_owned())
    }

    async fn leader(&self) -> Election {
        let mut election = self.election("me");
        let won = tokio::time::timeout(Duration::from_secs(1), election.win()).await;
        won.unwrap();
        self.0.lock().requests.clear();
        election
    }

    fn fail(&self, fault: Fault, requests: usize) {
        self.0.lock().fault = Some((fault, requests));
    }

    fn count(&self, method: &Method) -> usize {
        self.0.lock().requests.iter().filter(|one| *one == method).count()
    }
}

impl State {
    fn next_fault(&mut self) -> Option<Fault> {
        let (fault, left) = self.fault?;
        self.fault = (left > 1).then_some((fault, left - 1));
        Some(fault)
    }

    fn respond(&mut self, method: &Method, body: Value) -> (u16, Value) {
        let error = |code: u16, reason: &str| {
            (code, json!({ "status": "Failure", "code": code, "reason": reason, "message": "" }))
        };
        let version = self.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        match (method, version) {
            (&Method::GET, Some(_)) => (200, self.lease.clone().unwrap_or_default()),
            (&Method::GET, None) => error(404, "NotFound"),
            (&Method::PUT, present)
                if present != Some(body["metadata"]["resourceVersion"].clone()) =>
            {
                error(409, "Conflict")
            }
            _ => {
                self.version += 1;
                let mut lease = body;
                lease["metadata"]["resourceVersion"] = self.version.to_string().into();
                self.lease = Some(lease.clone());
                if let Some(written) = &self.written {
                    let _ = written.send(());
                }
                (200, lease)
            }
        }
    }
}

impl tower_service::Service<Request<Body>> for LeaseApi {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let (fault, (code, response)) = {
                let mut state = api.0.lock();
                state.requests.push(head.method.clone());
                let fault = state.next_fault();
                let response = match fault {
                    Some(Fault::Refused) => (500, json!({ "code": 500, "message": "refused" })),
                    Some(Fault::NoResponse) => (500, Value::Null),
                    Some(Fault::ResponseLost) | None => state.respond(&head.method, body),
                };
                (fault, response)
            };
            if matches!(fault, Some(Fault::NoResponse | Fault::ResponseLost)) {
                std::future::pending::<()>().await;
            }
            let bytes = serde_json::to_vec(&response).unwrap();
            Ok(Response::builder().status(code).body(Body::from(bytes)).unwrap())
        })
    }
}

/// When the lease is lost, in seconds; `None`: not within a minute.
async fn lost_after(election: &Election) -> Option<u64> {
    let begin = Instant::now();
    let lost = tokio::time::timeout(Duration::from_secs(60), election.keep()).await;
    lost.ok().map(|()| begin.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn leader_renews_its_lease_by_one_request_every_three_seconds() {
    let api = LeaseApi::default();
    let leader = api.leader().await;
    assert_eq!(lost_after(&leader).await, None);
    assert!((19..=20).contains(&api.count(&Method::PUT)), "{}", api.count(&Method::PUT));
    assert_eq!(api.count(&Method::GET), 0);
    leader.resign().await;
    let mut next = api.election("next");
    next.win().await;
}

#[tokio::test(start_paused = true)]
async fn lease_survives_failures_until_the_deadline() {
    for (fault, requests, expected) in [
        (Fault::NoResponse, 2, None),
        (Fault::NoResponse, 3, Some(30)),
        (Fault::ResponseLost, 1, None),
        (Fault::Refused, 50, None),
        (Fault::Refused, 99, Some(30)),
    ] {
        let api = LeaseApi::default();
        let leader = api.leader().await;
        api.fail(fault, requests);
        assert_eq!(lost_after(&leader).await, expected, "{requests}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_request_delays_a_candidate_by_seconds() {
    let api = LeaseApi::default();
    api.fail(Fault::NoResponse, 1);
    let mut candidate = api.election("me");
    let begin = Instant::now();
    candidate.win().await;
    assert_eq!(begin.elapsed(), ATTEMPT_MAX + RETRY);
    assert_eq!(lost_after(&candidate).await, None);
}

#[tokio::test(start_paused = true)]
async fn lease_that_another_process_has_taken_is_lost() {
    let api = LeaseApi::default();
    let leader = api.leader().await;
    {
        let mut state = api.0.lock();
        let lease = state.lease.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = "other".into();
        lease["metadata"]["resourceVersion"] = "1000".into();
    }
    assert_eq!(lost_after(&leader).await, Some(3));
}

#[tokio::test(start_paused = true)]
async fn change_by_others_that_keeps_the_holder_loses_nothing() {
    let api = LeaseApi::default();
    let leader = api.leader().await;
    api.0.lock().lease.as_mut().unwrap()["metadata"]["resourceVersion"] = "1000".into();
    assert_eq!(lost_after(&leader).await, None);
    assert_eq!(api.count(&Method::GET), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn busy_task_does_not_delay_renewals() {
    let api = LeaseApi::default();
    let leader = api.leader().await;
    let (written, seen) = mpsc::channel();
    api.0.lock().written = Some(written);
    let mut lead = pin!(leader.keep());
    poll_fn(|context| {
        assert!(lead.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    // This task does not yield meanwhile.
    seen.recv_timeout(Duration::from_secs(60)).unwrap();
}
