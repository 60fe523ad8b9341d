//! The server under test.

use serde::Deserialize;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A running `changefeed serve`. If the value is dropped, the server is killed.
pub struct Server {
    pub endpoint: String,
    pub key: String,
    pub certificate: String,
    child: Child,
}

/// The line with which the server says that clients may connect.
#[derive(Deserialize)]
struct Ready {
    endpoint: String,
    key: String,
    certificate: String,
}

impl Server {
    /// Starts the server, and waits for its line.
    pub fn start(binary: &str, dir: &str) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(binary)
            .args(["serve", "--db", &format!("{dir}/store"), "--listen", "127.0.0.1:0", "-o", "json"])
            .args(["--until-stdin-closes"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|err| format!("start {binary} serve: {err}"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let ready: Ready = match serde_json::from_str(&line) {
            Ok(ready) => ready,
            Err(err) => {
                child.kill()?;
                return Err(format!("start {binary} serve: its first line is {line:?}: {err}").into());
            }
        };
        Ok(Self { endpoint: ready.endpoint, key: ready.key, certificate: ready.certificate, child })
    }

    /// Ends the server in good order.
    pub fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("changefeed serve ended with {status}").into());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // an error says that the process has ended
        let _ = self.child.wait();
    }
}
