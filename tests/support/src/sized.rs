//! A JSON-RPC server that answers every request with a result of the size asked for.

use std::io::{self, BufRead, Write};

/// The number that follows `key` in `line`.
fn number(line: &[u8], key: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(line, key)? + key.len();
    let digits = line.get(at..)?.iter().take_while(|b| b.is_ascii_digit());
    Some(digits.fold(0, |n, &b| n * 10 + u64::from(b - b'0')))
}

/// Answers lines on stdin until it ends.
pub fn serve() -> io::Result<()> {
    let mut input = io::BufReader::with_capacity(256 * 1024, io::stdin().lock());
    let mut output = io::stdout().lock();
    let filler = vec![b'x'; 1 << 20];
    let (mut line, mut answer) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let Some(id) = number(&line, b"\"id\":") else {
            continue;
        };
        let size = number(&line, b"\"size\":").unwrap_or(0) as usize;
        answer.clear();
        write!(answer, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"")?;
        let tail = b"\"}]}}\n";
        let mut pad = size.saturating_sub(answer.len() + tail.len());
        while pad > 0 {
            let part = pad.min(filler.len());
            answer.extend_from_slice(&filler[..part]);
            pad -= part;
            if answer.len() >= 2 << 20 {
                write_all(&mut output, &answer)?;
                answer.clear();
            }
        }
        answer.extend_from_slice(tail);
        write_all(&mut output, &answer)?;
    }
}

/// Past the line buffer of the standard library, which would search every answer for line ends.
fn write_all(output: &mut io::StdoutLock<'_>, mut bytes: &[u8]) -> io::Result<()> {
    output.flush()?;
    while !bytes.is_empty() {
        let n = rustix::io::retry_on_intr(|| rustix::io::write(rustix::stdio::stdout(), bytes))?;
        bytes = &bytes[n..];
    }
    Ok(())
}
