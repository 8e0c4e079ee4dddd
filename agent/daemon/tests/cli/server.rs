//! A small HTTP server in the place of an agent, with faults.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::TcpListener,
    os::unix::net::UnixListener,
    path::Path,
    thread,
    time::Duration,
};

/// How it answers.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// By path: status and body; anything else is 404 with a problem document.
    Answers(HashMap<&'static str, (u16, String)>),
    /// It reads and says nothing.
    Silent,
    /// It closes each connection at once.
    Closes,
    /// It says this, whatever is asked.
    Says(&'static str),
}

impl Manner {
    pub(crate) fn answers(routes: &[(&'static str, u16, &str)]) -> Self {
        Self::Answers(routes.iter().map(|(path, status, body)| (*path, (*status, (*body).to_owned()))).collect())
    }
}

/// Serves on a free port of the loopback interface until the test's process ends; gives the address for `--agent`.
pub(crate) fn tcp(manner: Manner) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| converse(stream, &manner)));
    address
}

/// The same on a Unix socket.
pub(crate) fn unix(path: &Path, manner: Manner) -> String {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| converse(stream, &manner)));
    format!("unix:{}", path.display())
}

fn converse(mut stream: impl Read + Write, manner: &Manner) {
    if matches!(manner, Manner::Closes) {
        return;
    }
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => request.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let request = String::from_utf8_lossy(&request);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let answer = match manner {
        Manner::Silent => {
            // Until the client gives up, which closes the connection.
            let _ = stream.read(&mut buffer);
            return;
        }
        Manner::Says(text) => (*text).to_owned(),
        Manner::Answers(routes) => {
            assert!(request.contains("\r\nhost: "), "every HTTP/1.1 request names its host: {request}");
            let unknown =
                (404, r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"nothing"}"#.to_owned());
            let (status, body) = routes.get(path).cloned().unwrap_or(unknown);
            format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        }
        Manner::Closes => return,
    };
    let _ = stream.write_all(answer.as_bytes()).and_then(|()| stream.flush());
}

/// Far longer than anything here takes, far shorter than a test that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
