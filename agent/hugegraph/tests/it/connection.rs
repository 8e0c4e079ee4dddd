//! The bytes of a request as they stand on the wire.

use crate::host_port;
use std::time::Duration;
use storewatch_hugegraph::store::StorePing;
use tokio::{io::AsyncReadExt, net::TcpListener, time::Instant};

/// Reads frames after the preface until one of this type; gives its payload. Settings are granted on the way.
async fn payload_of(stream: &mut tokio::net::TcpStream, wanted: u8) -> Vec<u8> {
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        if header[3] == wanted {
            return payload;
        }
        assert_ne!(header[3], 6, "an HTTP/2 PING was sent");
    }
}

#[tokio::test]
async fn a_ping_is_an_empty_grpc_message_and_no_http2_ping_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let remote = listener.local_addr().unwrap();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, &[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        payload_of(&mut stream, 1).await;
        payload_of(&mut stream, 0).await
    };
    let authority = host_port(remote);
    let deadline = Instant::now() + Duration::from_millis(300);
    let ping = StorePing { remote, authority: &authority, identity: None, deadline };
    let (data, _) = tokio::join!(server, ping.send(None, None));
    assert_eq!(data, [0, 0, 0, 0, 0]);
}
