//! The client's side: processes on the way, and connections over which calls are measured.

use crate::server::{now, number};
use std::{
    ffi::OsString,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Arguments that mean nothing.
const NOTHING: &str = "\"size\":0";

/// A process that listens.
pub struct Process {
    child: Child,
    pub at: SocketAddr,
    _home: tempfile::TempDir,
}

/// A directory for a process, and a command that keeps what it writes there. A policy that allows everything is in it.
pub fn command(words: &[OsString]) -> io::Result<(tempfile::TempDir, Command)> {
    let home = tempfile::tempdir()?;
    let policy = home.path().join("policy.yaml");
    std::fs::write(&policy, "version: \"1\"\ndefault: allow\n")?;
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .current_dir(home.path())
        .env("HOME", home.path())
        .env("ASSAY_HOME", home.path().join("home"));
    Ok((home, command))
}

impl Process {
    /// Starts a process that says where it listens; an error if it ends before.
    pub fn start(words: &[OsString]) -> io::Result<Self> {
        let (home, mut command) = command(words)?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        let at = line.split("listening on http://").nth(1).and_then(|rest| rest.split('/').next()?.parse().ok());
        let Some(at) = at else {
            child.wait()?;
            return Err(io::Error::other(line));
        };
        thread::spawn(move || io::copy(&mut said, &mut io::sink()));
        Ok(Self { child, at, _home: home })
    }

    /// Processor time that it has used, ns: a multiple of 10 ms.
    pub fn used(&self) -> io::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Behind the name, which may hold anything: utime and stime are the 14th and 15th of all (proc_pid_stat(5)).
        let behind = stat.rsplit(") ").next().unwrap_or_default();
        let ticks = behind.split(' ').skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>();
        Ok(ticks * 1e9 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Waits until it does nothing more; the processor time that it has used then, ns.
    pub fn settle(&self) -> io::Result<f64> {
        loop {
            let before = self.used()?;
            thread::sleep(Duration::from_millis(200));
            let used = self.used()?;
            if used - before < 2e7 {
                return Ok(used);
            }
        }
    }

    /// Peak resident memory, MiB.
    pub fn peak(&self) -> f64 {
        assay_support::alone::peak_kib(self.child.id()) as f64 / 1024.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `tools/call` of at least `sent` bytes.
pub fn call(id: u64, tool: &str, arguments: &str, sent: usize) -> String {
    let begin = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{{arguments},"pad":""#
    );
    let end = "\"}}}";
    let pad = "y".repeat(sent.saturating_sub(begin.len() + end.len()));
    begin + &pad + end
}

/// A connection with a session.
pub struct Connection {
    reader: BufReader<TcpStream>,
    host: SocketAddr,
    id: u64,
}

impl Connection {
    pub fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        let mut connection = Self { reader: BufReader::with_capacity(256 << 10, stream), host: to, id: 0 };
        connection.send(assay_support::rig::INITIALIZE)?;
        connection.receive(|_| ())?;
        Ok(connection)
    }

    fn send(&mut self, body: &str) -> io::Result<()> {
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Session-Id: s\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.reader.get_mut().write_all(request.as_bytes())
    }

    fn head(&mut self) -> io::Result<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.reader.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if head.starts_with("HTTP/1.1 200") { Ok(head) } else { Err(io::Error::other(head)) }
    }

    /// Reads an answer in pieces; its bytes.
    fn receive(&mut self, mut piece: impl FnMut(&[u8])) -> io::Result<u64> {
        let head = self.head()?;
        let mut buffer = vec![0; 64 << 10];
        let mut copy = |reader: &mut BufReader<TcpStream>, mut left: usize| -> io::Result<()> {
            while left > 0 {
                let n = left.min(64 << 10);
                reader.read_exact(&mut buffer[..n])?;
                piece(&buffer[..n]);
                left -= n;
            }
            Ok(())
        };
        if let Some(length) = number(head.to_ascii_lowercase().as_bytes(), b"content-length: ") {
            copy(&mut self.reader, length as usize)?;
            return Ok(length);
        }
        let mut total = 0;
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
            copy(&mut self.reader, size)?;
            self.reader.read_exact(&mut [0; 2])?;
            total += size as u64;
            if size == 0 {
                return Ok(total);
            }
        }
    }

    /// One call of `tool`; how long it took, and the bytes of its answer.
    pub fn call(&mut self, tool: &str, arguments: &str) -> io::Result<(Duration, u64)> {
        self.id += 1;
        let body = call(self.id, tool, arguments, 200);
        let begun = Instant::now();
        self.send(&body)?;
        let bytes = self.receive(|_| ())?;
        Ok((begun.elapsed(), bytes))
    }

    /// How long it takes until the server knows that the client of an open stream has gone.
    pub fn leave(mut self, witness: &mut Self) -> io::Result<Duration> {
        self.send(&call(1, "hold", NOTHING, 200))?;
        self.head()?;
        let left = now();
        drop(self);
        let mut gone = None;
        witness.send(&call(1, "gone", NOTHING, 200))?;
        witness.receive(|piece| gone = gone.or(number(piece, b"at:")))?;
        gone.map(|gone| Duration::from_nanos(gone.saturating_sub(left))).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// How long it takes until the client knows that the server has left it in the middle of a stream.
    pub fn be_left(mut self) -> io::Result<Duration> {
        self.send(&call(1, "leave", NOTHING, 200))?;
        let mut left = None;
        let cut = self.receive(|piece| left = left.or(number(piece, b"at:")));
        let known = now();
        match (cut, left) {
            (Err(_), Some(left)) => Ok(Duration::from_nanos(known - left)),
            _ => Err(io::Error::other("the stream was not cut behind its event")),
        }
    }

    /// How long each event of a stream was on its way.
    pub fn ticks(&mut self, count: usize) -> io::Result<Vec<Duration>> {
        self.id += 1;
        self.send(&call(self.id, "ticks", &format!("\"count\":{count}"), 200))?;
        let mut delays = Vec::new();
        self.receive(|piece| {
            if let Some(sent) = number(piece, b"at:") {
                delays.push(Duration::from_nanos(now() - sent));
            }
        })?;
        Ok(delays)
    }
}
