//! What is counted, in the text format of Prometheus. Each service counts for itself: nothing on the way of a request looks up
//! a name, and the series of a service go with it.

use super::registry::{Found, State};
use crate::{
    model::{Outcome, ToolCall, Vocabulary as _, WallTime},
    record::witness::Witness,
};
use arc_swap::ArcSwap;
use http::{Method, StatusCode};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, prometheus_text},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The content type of the text.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Upper bounds of what is measured in seconds.
const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
const METHODS: [&str; 5] = ["GET", "POST", "DELETE", "OPTIONS", "other"];
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];
const OUTCOMES: [Outcome; 4] = [Outcome::Forwarded, Outcome::Error, Outcome::Denied, Outcome::Timeout];

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

/// What is counted of one service.
#[derive(Debug)]
pub struct ServiceMetrics {
    requests: [[Counter; CLASSES.len()]; METHODS.len()],
    calls: [Histogram; OUTCOMES.len()],
    first_byte: Histogram,
    streams: Gauge,
    sessions: Gauge,
    gaps: Counter,
    checks: [Counter; Found::ALL.len()],
    denied: Mutex<BTreeMap<String, u64>>,
    known: Mutex<Known>,
}

/// What the registry and the decisions say of a service.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// When it was seen whole last.
    pub last_success: Option<WallTime>,
    /// When it is looked at next.
    pub next_due: Option<WallTime>,
    /// How many of its items stand in each way.
    pub items: BTreeMap<&'static str, u64>,
    /// How many decisions of each kind there are about it.
    pub decisions: BTreeMap<&'static str, u64>,
}

impl Default for ServiceMetrics {
    fn default() -> Self {
        Self {
            requests: Default::default(),
            calls: std::array::from_fn(|_| seconds()),
            first_byte: seconds(),
            streams: Gauge::default(),
            sessions: Gauge::default(),
            gaps: Counter::default(),
            checks: Default::default(),
            denied: Mutex::default(),
            known: Mutex::default(),
        }
    }
}

impl ServiceMetrics {
    /// A request was answered; without a status its client got no answer.
    pub fn request(&self, method: &Method, status: Option<StatusCode>, first_byte: Option<Duration>) {
        let method = METHODS.iter().position(|name| *name == method.as_str()).unwrap_or(METHODS.len() - 1);
        let class = status.and_then(|status| usize::from(status.as_u16() / 100).checked_sub(1));
        let class = class.filter(|class| *class < CLASSES.len() - 1).unwrap_or(CLASSES.len() - 1);
        self.requests[method][class].inc();
        if let Some(time) = first_byte {
            self.first_byte.observe(time.as_secs_f64());
        }
    }

    /// An event stream was opened.
    pub fn stream_opened(&self) {
        self.streams.inc();
    }

    /// It is closed.
    pub fn stream_closed(&self) {
        self.streams.dec();
    }

    /// A check has ended.
    pub fn checked(&self, found: Found) {
        if let Some(n) = Found::ALL.iter().position(|one| *one == found) {
            self.checks[n].inc();
        }
    }

    /// What is known of it now.
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witness for ServiceMetrics {
    fn began(&self) {
        self.sessions.inc();
    }

    fn ended(&self) {
        self.sessions.dec();
    }

    fn call(&self, receipt: &ToolCall) {
        if let Some(n) = OUTCOMES.iter().position(|outcome| *outcome == receipt.outcome) {
            let us = receipt.duration_ms.map_or(0, |duration| duration.0);
            self.calls[n].observe(us as f64 / 1_000_000.0);
        }
        let reason = receipt.policy_reason.as_ref().and_then(|word| word.as_str().strip_prefix("surface:"));
        if let Some(reason) = reason.filter(|_| receipt.outcome == Outcome::Denied) {
            let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
            *denied.entry(reason.to_owned()).or_default() += 1;
        }
    }

    fn gap(&self) {
        self.gaps.inc();
    }
}

/// All that is counted.
#[derive(Debug)]
pub struct Metrics {
    services: ArcSwap<BTreeMap<String, Arc<ServiceMetrics>>>,
    snapshots: Histogram,
    registry_errors: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { services: ArcSwap::default(), snapshots: seconds(), registry_errors: Counter::default() }
    }
}

impl Metrics {
    /// What is counted of a service, if there is one of this name.
    #[must_use]
    pub fn of(&self, service: &str) -> Option<Arc<ServiceMetrics>> {
        self.services.load().get(service).cloned()
    }

    /// These are the services that there are.
    pub fn set_services<'a>(&self, all: impl Iterator<Item = (&'a str, &'a Arc<ServiceMetrics>)>) {
        self.services.store(Arc::new(all.map(|(name, service)| (name.to_owned(), service.clone())).collect()));
    }

    /// A server was asked all that it offers, which took so long.
    pub fn snapshot(&self, took: Duration) {
        self.snapshots.observe(took.as_secs_f64());
    }

    /// A call of the registry failed.
    pub fn registry_error(&self) {
        self.registry_errors.inc();
    }

    /// The text; `states` are those of the routes.
    #[must_use]
    pub fn text(&self, states: Vec<(String, State)>, now: WallTime) -> String {
        let mut registry = Registry::default();
        registry.register(
            "mcp_guardian_snapshot_seconds",
            "Time to ask a server all that it offers",
            self.snapshots.clone(),
        );
        registry.register(
            "assay_registry_errors",
            "Calls of the registry that failed; routes stay as they are then",
            self.registry_errors.clone(),
        );
        registry.register_collector(Box::new(Scrape { services: self.services.load_full(), states, now }));
        let mut text = String::new();
        match prometheus_text::encode(&mut text, &registry) {
            Ok(()) => text,
            Err(fmt::Error) => String::new(),
        }
    }
}

#[derive(Debug)]
struct Scrape {
    services: Arc<BTreeMap<String, Arc<ServiceMetrics>>>,
    states: Vec<(String, State)>,
    now: WallTime,
}

/// One metric of all services.
struct Series<'a>(MetricEncoder<'a>);

impl Series<'_> {
    fn put(&mut self, labels: &[(&str, &str)], metric: &impl EncodeMetric) -> fmt::Result {
        metric.encode(self.0.encode_family(&labels)?)
    }

    fn gauge(&mut self, labels: &[(&str, &str)], value: f64) -> fmt::Result {
        self.put(labels, &ConstGauge::new(value))
    }
}

impl Scrape {
    /// A metric of each service.
    fn each(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, kind, help): (&str, MetricType, &str),
        put: impl Fn(&mut Series<'_>, &str, &ServiceMetrics) -> fmt::Result,
    ) -> fmt::Result {
        let mut series = Series(encoder.encode_descriptor(name, help, None, kind)?);
        self.services.iter().try_for_each(|(name, service)| put(&mut series, name, service))
    }

    /// A metric of each route.
    fn routes(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        put: impl Fn(&mut Series<'_>, &str, State) -> fmt::Result,
    ) -> fmt::Result {
        let mut series = Series(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?);
        self.states.iter().try_for_each(|(name, state)| put(&mut series, name, *state))
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        use MetricType::{Counter as Count, Gauge, Histogram as Times};
        let e = &mut encoder;
        let about = "The version of the gateway";
        Series(e.encode_descriptor("assay_build_info", about, None, Gauge)?)
            .gauge(&[("version", env!("CARGO_PKG_VERSION"))], 1.0)?;
        let number = |is_so: bool| f64::from(u8::from(is_so));
        self.routes(e, ("mcp_guardian_routes_enabled", "1 where requests pass, else 0"), |s, name, state| {
            s.gauge(&[("service", name)], number(state == State::Enabled))
        })?;
        self.routes(e, ("assay_route_state", "1 for the state of a route, 0 for the others"), |s, name, state| {
            State::ALL
                .iter()
                .try_for_each(|one| s.gauge(&[("service", name), ("state", one.as_str())], number(*one == state)))
        })?;
        self.each(e, ("mcp_guardian_sse_connections", Gauge, "Event streams that are open"), |s, name, service| {
            s.put(&[("service", name)], &service.streams)
        })?;
        self.each(e, ("assay_http_requests", Count, "Requests by method and class of status"), |s, name, service| {
            for (method, classes) in METHODS.iter().zip(&service.requests) {
                for (class, count) in CLASSES.iter().zip(classes).filter(|(_, count)| count.get() > 0) {
                    s.put(&[("service", name), ("method", method), ("class", class)], count)?;
                }
            }
            Ok(())
        })?;
        self.each(e, ("assay_call_seconds", Times, "Time from a tool call to its result"), |s, name, service| {
            OUTCOMES
                .iter()
                .zip(&service.calls)
                .try_for_each(|(outcome, times)| s.put(&[("service", name), ("outcome", outcome.as_str())], times))
        })?;
        let about = "Time from a request to the head of its answer";
        self.each(e, ("assay_upstream_first_byte_seconds", Times, about), |s, name, service| {
            s.put(&[("service", name)], &service.first_byte)
        })?;
        self.each(e, ("assay_sessions", Gauge, "Sessions that are recorded"), |s, name, service| {
            s.put(&[("service", name)], &service.sessions)
        })?;
        self.each(e, ("assay_evidence_gaps", Count, "Times that evidence was lost"), |s, name, service| {
            s.put(&[("service", name)], &service.gaps)
        })?;
        self.each(e, ("assay_checks", Count, "Checks by what they came to"), |s, name, service| {
            Found::ALL
                .iter()
                .zip(&service.checks)
                .try_for_each(|(found, count)| s.put(&[("service", name), ("outcome", found.as_str())], count))
        })?;
        let about = "When a server was seen whole last";
        self.each(e, ("assay_check_last_success_timestamp_seconds", Gauge, about), |s, name, service| {
            let at = service.known().last_success;
            at.map_or(Ok(()), |at| s.gauge(&[("service", name)], at.millis() as f64 / 1000.0))
        })?;
        self.each(e, ("assay_check_overdue_seconds", Gauge, "How long a check is overdue"), |s, name, service| {
            let late = service.known().next_due.map_or(0, |due| self.now.millis().saturating_sub(due.millis()).max(0));
            s.gauge(&[("service", name)], late as f64 / 1000.0)
        })?;
        let about = "Items that a server was last seen to offer, by how they stand with what is approved";
        self.each(e, ("assay_surface_items", Gauge, about), |s, name, service| {
            let items = service.known().items.clone();
            items.iter().try_for_each(|(state, n)| s.gauge(&[("service", name), ("state", state)], *n as f64))
        })?;
        let about = "Calls that were refused because of what their tool is";
        self.each(e, ("assay_surface_denied", Count, about), |s, name, service| {
            let denied = service.denied.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let put =
                |(reason, n): (&String, &u64)| s.put(&[("service", name), ("reason", reason)], &ConstCounter::new(*n));
            denied.iter().try_for_each(put)
        })?;
        self.each(e, ("assay_approvals", Count, "Decisions about what a server offers"), |s, name, service| {
            let decisions = service.known().decisions.clone();
            let put = |(decision, n): (&&str, &u64)| {
                s.put(&[("service", name), ("decision", decision)], &ConstCounter::new(*n))
            };
            decisions.iter().try_for_each(put)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_come_and_go_with_their_service() {
        let metrics = Metrics::default();
        let (a, b) = (Arc::<ServiceMetrics>::default(), Arc::default());
        metrics.set_services([("a", &a), ("b", &b)].into_iter());
        a.request(&Method::POST, StatusCode::from_u16(200).ok(), Some(Duration::from_millis(20)));
        a.request(&Method::PUT, None, None);
        b.request(&Method::GET, StatusCode::from_u16(503).ok(), None);
        a.stream_opened();
        a.began();
        a.gap();
        a.checked(Found::Changed);
        metrics.snapshot(Duration::from_millis(3));
        metrics.registry_error();
        let at = WallTime::from_millis;
        *a.known() = Known {
            last_success: Some(at(1_700_000_000_500)),
            next_due: Some(at(1_700_000_001_000)),
            items: [("approved", 19)].into(),
            decisions: [("first_use", 1)].into(),
        };
        let states = vec![("a".to_owned(), State::Enabled), ("b".to_owned(), State::DisabledDrift)];
        let text = metrics.text(states.clone(), at(1_700_000_003_000));
        for line in [
            "# TYPE assay_http_requests_total counter",
            "# TYPE mcp_guardian_snapshot_seconds histogram",
            "mcp_guardian_routes_enabled{service=\"a\"} 1.0",
            "mcp_guardian_routes_enabled{service=\"b\"} 0.0",
            "assay_route_state{service=\"b\",state=\"disabled_drift\"} 1.0",
            "assay_route_state{service=\"b\",state=\"enabled\"} 0.0",
            "mcp_guardian_sse_connections{service=\"a\"} 1",
            "mcp_guardian_snapshot_seconds_bucket{le=\"0.005\"} 1",
            "assay_http_requests_total{service=\"a\",method=\"POST\",class=\"2xx\"} 1",
            "assay_http_requests_total{service=\"a\",method=\"other\",class=\"none\"} 1",
            "assay_http_requests_total{service=\"b\",method=\"GET\",class=\"5xx\"} 1",
            "assay_upstream_first_byte_seconds_count{service=\"a\"} 1",
            "assay_sessions{service=\"a\"} 1",
            "assay_evidence_gaps_total{service=\"a\"} 1",
            "assay_checks_total{service=\"a\",outcome=\"changed\"} 1",
            "assay_check_last_success_timestamp_seconds{service=\"a\"} 1700000000.5",
            "assay_check_overdue_seconds{service=\"a\"} 2.0",
            "assay_surface_items{service=\"a\",state=\"approved\"} 19.0",
            "assay_approvals_total{service=\"a\",decision=\"first_use\"} 1",
            "assay_registry_errors_total 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        // One that is gone has no series.
        metrics.set_services(std::iter::once(("a", &a)));
        let text = metrics.text(states[..1].to_vec(), at(0));
        assert!(text.contains("class=\"2xx\"} 1") && !text.contains("service=\"b\""), "{text}");
    }
}
