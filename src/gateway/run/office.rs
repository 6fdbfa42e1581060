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
        registry::{Adopted, Registry},
        spec::Spec,
    },
};
use std::path::Path;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

impl Gateway<'_> {
    /// Puts a configuration into force, and its tokens for the API: all of it or nothing.
    pub(super) fn take_with_tokens(&mut self, config: &Config) -> Result<Adopted, Failure> {
        let admin =
            config.admin.token.as_ref().map(|reference| token(reference, "the token of the API")).transpose()?;
        let keys = self.keys_with(admin.as_ref()).map_err(|e| super::registry_failure(&self.settings.data, &e))?;
        let adopted = self.take(config)?;
        self.token = admin;
        self.keys.store(keys.into());
        Ok(adopted)
    }

    fn keys_with(&self, admin: Option<&Zeroizing<String>>) -> Result<Keys, DbError> {
        Ok(Keys::of(&self.registry.tokens()?, admin.map(|text| text.as_str())))
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
        let keys = self.keys_with(self.token.as_ref());
        if let Some(keys) = self.worked(keys) {
            self.keys.store(keys.into());
        }
    }
}
