//! What the API asks of the gateway. One thread has the registry and the services; it does one thing after the other, so
//! nothing that was looked at changes while it is acted upon.

use super::problem::Problem;
use crate::{
    db::DbError,
    error::Failure,
    gateway::{
        config::{Config, Service},
        look::Seen,
        registry::{Found, Registry},
        spec::Spec,
    },
};
use std::{path::Path, sync::Arc};
use tokio::sync::oneshot;

/// What a check that somebody waits for came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// What it found.
    pub found: Found,
    /// Why, where it is not what was approved.
    pub reason: Option<String>,
    /// How long it took.
    pub ms: u64,
    /// The hash of what it saw.
    pub snapshot_hash: Option<String>,
}

/// Why a service cannot be looked at now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNow {
    /// It is looked at just now.
    Running,
    /// Nothing of it runs: it is not wanted.
    Off,
}

/// Why the services cannot be changed so.
#[derive(Debug)]
pub enum Refusal {
    /// The registry.
    Registry(DbError),
    /// Anything else.
    Other(Failure),
}

impl From<DbError> for Refusal {
    fn from(e: DbError) -> Self {
        Self::Registry(e)
    }
}

impl From<Failure> for Refusal {
    fn from(e: Failure) -> Self {
        Self::Other(e)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Registry(e) => e.into(),
            Refusal::Other(e) => e.into(),
        }
    }
}

/// The gateway, as the API sees it.
pub trait Office {
    /// What is known.
    fn registry(&mut self) -> &mut dyn Registry;

    /// The configuration that is in force.
    fn config(&self) -> &Config;

    /// A service, as it is in force.
    fn service(&self, name: &str) -> Option<&Service>;

    /// Where everything is kept.
    fn data(&self) -> &Path;

    /// Makes a service of the API, or another one of it.
    ///
    /// # Errors
    /// Nothing was changed then.
    fn make(&mut self, name: &str, spec: &Spec, actor: &str) -> Result<(), Refusal>;

    /// Takes a service of the API away.
    ///
    /// # Errors
    /// Nothing was changed then.
    fn remove(&mut self, name: &str, actor: &str) -> Result<(), Refusal>;

    /// Takes up what was seen of a service.
    fn take_up(&mut self, seen: &Seen);

    /// Takes up what was decided.
    fn decided(&mut self);

    /// Has a service looked at, and says what that came to.
    ///
    /// # Errors
    /// It cannot be looked at now.
    fn check(&mut self, name: &str, done: oneshot::Sender<Looked>) -> Result<(), NotNow>;

    /// The tokens are other ones.
    fn tokens_changed(&mut self);
}

/// Something that the gateway is asked.
pub type Job = Box<dyn FnOnce(&mut dyn Office) + Send>;

/// The way to it.
#[derive(Clone)]
pub struct Desk(Arc<dyn Fn(Job) -> bool + Send + Sync>);

impl Desk {
    /// Over this; it says whether a job was taken.
    pub fn new(send: impl Fn(Job) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(send))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The gateway ends.
    pub async fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut dyn Office) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (tell, told) = oneshot::channel();
        let taken = (self.0)(Box::new(move |office| drop(tell.send(job(office)))));
        let ends = || Problem::unavailable("the gateway ends");
        if !taken {
            return Err(ends());
        }
        told.await.map_err(|_| ends())
    }
}
