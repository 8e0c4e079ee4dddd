"""dns.py ADDRESS ZONE LOG: the cluster's name server, on UDP port 53 of ADDRESS.

ZONE has lines "name address" and is read again for every query, so one file rename moves a name to a new address. A
known name answers A queries and has empty answers otherwise; an unknown one is NXDOMAIN. LOG gets one line per query:
Unix time, client, name, type, answer.
"""
import pathlib
import socket
import struct
import sys
import time

TTL = 5                                  # seconds, as CoreDNS gives for headless Services
A, NXDOMAIN, RESPONSE = 1, 3, 0x8580     # response, authoritative, recursion available as asked


def zone(path: str) -> dict[str, list[str]]:
    """All names with their addresses."""
    names: dict[str, list[str]] = {}
    for line in pathlib.Path(path).read_text().splitlines():
        name, *addresses = line.split() or [""]
        if name:
            names[name.lower()] = addresses
    return names


def question(query: bytes) -> tuple[str, int, int]:
    """(name, type, where the question ends) of a query; ValueError if it is none."""
    if len(query) < 17:
        raise ValueError("too short")
    labels, at = [], 12
    while query[at]:
        length = query[at]
        if length > 63 or at + length + 5 >= len(query):
            raise ValueError("label runs past the end")
        labels.append(query[at + 1:at + 1 + length].decode("ascii"))
        at += 1 + length
    return ".".join(labels).lower(), struct.unpack_from(">H", query, at + 1)[0], at + 5


def answer(query: bytes, names: dict[str, list[str]]) -> tuple[bytes, str]:
    """The response to a query, and what the log says about it."""
    name, kind, end = question(query)
    known = names.get(name)
    addresses = known if known and kind == A else []
    code = NXDOMAIN if known is None else 0
    reply = query[:2] + struct.pack(">HHHHH", RESPONSE | code, 1, len(addresses), 0, 0) + query[12:end]
    for address in addresses:
        reply += struct.pack(">HHHIH", 0xc00c, A, 1, TTL, 4) + socket.inet_aton(address)
    return reply, f"{name} {kind} {','.join(addresses) or ('NXDOMAIN' if code else 'empty')}"


def serve(bind: str, path: str, log_path: str) -> None:
    """Answers for ever."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((bind, 53))
    with open(log_path, "a", buffering=1) as log:
        while True:
            query, client = sock.recvfrom(2048)
            try:
                reply, line = answer(query, zone(path))
                sock.sendto(reply, client)
                log.write(f"{time.time():.3f} {client[0]} {line}\n")
            except (ValueError, IndexError, OSError) as error:
                log.write(f"{time.time():.3f} {client[0]} ignored: {error}\n")


if __name__ == "__main__":
    serve(*sys.argv[1:4])
