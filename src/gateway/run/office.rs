//! What the API asks of the gateway.

use super::{Gateway, Made, token};
use crate::{
    db::DbError,
    error::Failure,
    gateway::{
        api::{
            auth::Keys,
            desk::{Looked, NotNow, Office, Refusal},
        },
        config::{Config, Service},
        look::Seen,
        registry::Registry,
        spec::Spec,
    },
};
use std::path::Path;
use tokio::sync::oneshot;

impl Gateway<'_> {
    /// Reads the tokens for the API.
    pub(super) fn read_tokens(&mut self, config: &Config) -> Result<(), Failure> {
        self.token =
            config.admin.token.as_ref().map(|reference| token(reference, "the token of the API")).transpose()?;
        self.known_tokens().map_err(|e| super::registry_failure(&self.settings.data, &e))
    }

    fn known_tokens(&self) -> Result<(), DbError> {
        let rows = self.registry.tokens()?;
        self.keys.store(Keys::of(&rows, self.token.as_ref().map(|text| text.as_str())).into());
        Ok(())
    }
}

impl Office for Gateway<'_> {
    fn registry(&mut self) -> &mut dyn Registry {
        &mut *self.registry
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn service(&self, name: &str) -> Option<&Service> {
        self.services.get(name)
    }

    fn data(&self) -> &Path {
        &self.settings.data
    }

    fn make(&mut self, name: &str, spec: &Spec, actor: &str) -> Result<(), Refusal> {
        let mut made = self.made()?;
        made.insert(name.to_owned(), Made::Spec(spec.clone()));
        self.put(self.config.clone(), &made, actor).map(drop)
    }

    fn remove(&mut self, name: &str, actor: &str) -> Result<(), Refusal> {
        let mut made = self.made()?;
        made.remove(name);
        self.put(self.config.clone(), &made, actor).map(drop)?;
        self.waiting.remove(name);
        Ok(())
    }

    fn take_up(&mut self, seen: &Seen) {
        self.looked(seen);
    }

    fn decided(&mut self) {
        Gateway::decided(self);
    }

    fn check(&mut self, name: &str, done: oneshot::Sender<Looked>) -> Result<(), NotNow> {
        if self.looking.contains_key(name) || self.waiting.contains_key(name) {
            return Err(NotNow::Running);
        }
        let lane = self.lanes.get_mut(name).ok_or(NotNow::Off)?;
        lane.look_now = true;
        self.waiting.insert(name.to_owned(), vec![done]);
        Ok(())
    }

    fn tokens_changed(&mut self) {
        let known = self.known_tokens();
        self.worked(known);
    }
}
