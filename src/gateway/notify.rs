//! What a service manager is told that started the gateway (`sd_notify(3)`), and only if it asks for it.

use std::{
    ffi::OsStr,
    io,
    os::unix::net::{SocketAddr, UnixDatagram},
    time::{Duration, Instant},
};

/// A service manager that listens, or nobody.
#[derive(Default)]
pub struct Manager {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that the gateway is alive, and when it was told last.
    watchdog: Option<(Duration, Option<Instant>)>,
}

impl Manager {
    /// The one that the environment names (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).
    #[must_use]
    pub fn of_environment() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let every = number("WATCHDOG_USEC").filter(|_| is_for_us).map(Duration::from_micros);
        std::env::var_os("NOTIFY_SOCKET").and_then(|name| Self::at(&name, every).ok()).unwrap_or_default()
    }

    fn at(name: &OsStr, every: Option<Duration>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // Nobody waits for a manager that does not read.
        socket.set_nonblocking(true)?;
        let watchdog = every.map(|every| (every / 2, None));
        Ok(Self { to: Some((socket, address(name)?)), watchdog })
    }

    /// Tells it a state, as in `READY=1`.
    pub fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.to
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::debug!(%error, "the service manager does not hear");
        }
    }

    /// Tells it that the gateway is alive, as often as it wants to hear that.
    pub fn alive(&mut self, now: Instant) {
        let Some((every, last)) = &mut self.watchdog else { return };
        if last.is_none_or(|last| now.duration_since(last) >= *every) {
            *last = Some(now);
            self.tell("WATCHDOG=1");
        }
    }
}

/// A path, or behind an `@` a name that is no file.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_hears_what_it_asked_for() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("notify");
        let heard = UnixDatagram::bind(&path).unwrap();
        heard.set_nonblocking(true).unwrap();
        let mut manager = Manager::at(path.as_os_str(), Some(Duration::from_secs(10))).unwrap();
        let now = Instant::now();
        manager.tell("READY=1");
        for seconds in [0, 4, 5, 6, 10] {
            manager.alive(now + Duration::from_secs(seconds));
        }
        let mut all = Vec::new();
        let mut buffer = [0; 64];
        while let Ok(read) = heard.recv(&mut buffer) {
            all.push(String::from_utf8(buffer[..read].to_vec()).unwrap());
        }
        assert_eq!(all, ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]);
        // Nobody listens any more, or nobody ever did.
        drop(heard);
        manager.tell("STOPPING=1");
        Manager::default().alive(now);
    }
}
