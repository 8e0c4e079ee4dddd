"""The tests' own answer to "does this Store answer?": one getScanState call over a fresh plaintext HTTP/2 connection.

Independent of the agent under test, so that "ms from a Store's first answer" has a zero of its own.
"""
import socket
import struct
import time

import network

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, GOAWAY = 0, 1, 4, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def store(namespace: str, address: str, port: int = 8500, limit: float = 1.0) -> str | None:
    """The identity that the Store at this address gives, None if it does not answer within `limit` seconds."""
    until = time.monotonic() + limit
    with network.inside(namespace):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(limit)
        sock.connect((address, port))
        sock.sendall(PREFACE + _frame(SETTINGS, 0, 0, b"") + _frame(HEADERS, END_HEADERS, 1, _request(address, port))
                     + _frame(DATA, END_STREAM, 1, b"\0" * 5))
        return _identity(_body(sock, until))
    except (OSError, ValueError):
        return None
    finally:
        sock.close()


def wait(namespace: str, addresses: list[str], limit: float, every: float = 0.02) -> float | None:
    """Unix time at which the first of these Stores answered; None if none did within `limit` seconds."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        for address in addresses:
            if store(namespace, address, limit=0.5) is not None:
                return time.time()
        time.sleep(every)
    return None


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _request(address: str, port: int) -> bytes:
    def text(value: str) -> bytes:
        return bytes([len(value)]) + value.encode()
    # HPACK without indexing: static entries 3 (POST), 6 (http), names 4 (:path), 1 (:authority), 31 (content-type)
    return (b"\x83\x86\x04" + text("/HgStoreState/getScanState") + b"\x01" + text(f"{address}:{port}")
            + b"\x0f\x10" + text("application/grpc") + b"\x00" + text("te") + text("trailers"))


def _body(sock: socket.socket, until: float) -> bytes:
    """The DATA of stream 1, up to the end of its first gRPC message."""
    raw, body = b"", b""
    while True:
        sock.settimeout(max(0.001, until - time.monotonic()))
        part = sock.recv(65536)
        if not part:
            raise ValueError("connection closed")
        raw += part
        while len(raw) >= 9 and len(raw) >= 9 + (size := int.from_bytes(raw[:3], "big")):
            kind, flags, stream = raw[3], raw[4], int.from_bytes(raw[5:9], "big")
            payload, raw = raw[9:9 + size], raw[9 + size:]
            if kind == SETTINGS and not flags & ACK:
                sock.sendall(_frame(SETTINGS, ACK, 0, b""))
            elif kind == DATA and stream == 1:
                body += payload
                if len(body) >= 5 and len(body) >= 5 + int.from_bytes(body[1:5], "big"):
                    return body[5:]
            elif kind == GOAWAY or (kind == HEADERS and stream == 1 and flags & END_STREAM):
                raise ValueError("refused")


def _identity(message: bytes) -> str:
    """ScanState.address (field 1)."""
    if message[:1] != b"\x0a" or len(message) < 2 + message[1]:
        raise ValueError("no address in ScanState")
    return message[2:2 + message[1]].decode()
