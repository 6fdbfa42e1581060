//! A recorder that is told of messages, without a proxy.

use assay::{
    model::{Direction, Profile, Transport},
    record::{
        recorder::{Message, Origin, Recorder, Setup},
        stream::{MessagePlace, StreamId},
    },
};
use std::{cell::OnceCell, sync::Arc};

/// What a recorder is told in front of a server `server` in audit, without a policy and without contents.
pub fn setup() -> Arc<Setup> {
    Arc::new(Setup {
        profile: Profile::Audit,
        transport: Transport::Stdio,
        server_id: "server".to_owned(),
        origin: Origin::of_command(vec!["server".to_owned()], false),
        http: None,
        store_args: false,
        cleartext: assay::record::redact::Cleartext::default(),
        store_results: false,
        store_limit: 1 << 20,
        redact: None,
        policy_hash: None,
        surface: None,
        witness: None,
    })
}

/// How far both streams of a session have come.
#[derive(Debug, Default)]
pub struct Streams([u64; 2]);

impl Streams {
    /// Lets a message of one line cross: all of it read at `read_ns`, handed on at `written_ns`.
    pub fn say(&mut self, recorder: &mut Recorder, direction: Direction, text: &str, read_ns: u64, written_ns: u64) {
        let at = &mut self.0[usize::from(direction == Direction::ServerToClient)];
        let (offset, end) = (*at, *at + text.len() as u64 + 1);
        *at = end;
        recorder.message(&Message {
            place: MessagePlace::stdio(direction, offset),
            end,
            bytes: text.as_bytes(),
            sha256: &OnceCell::new(),
            page: None,
            rest: &|| (),
            first_byte_ns: read_ns,
            read_ns,
            ruling: None,
            undecided: false,
            anomalies: &[],
            resumable: false,
        });
        recorder.delivered(StreamId::Stdio(direction), end, &|_| Some(written_ns));
    }
}
