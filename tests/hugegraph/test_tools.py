#!/usr/bin/env python3
"""Tests of the tools that need neither root nor a cluster. Their count comes last, in cargo's form."""
import argparse
import os
import signal
import socket
import struct
import subprocess
import threading
import unittest
from pathlib import Path
from unittest import mock

import dns
import ping
import processes
import roles
import settings
import timeline
from oracle import Second

NAME = "hugegraph-store-1.hugegraph-store.graph.svc"
ZONE = {NAME: ["10.124.0.11"]}


def query(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return b"\x12\x34" + struct.pack(">HHHHH", 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


class NameServer(unittest.TestCase):
    def test_a_known_name_has_its_address(self):
        reply, line = dns.answer(query(NAME.upper(), dns.A), ZONE)
        self.assertEqual(reply[:2], b"\x12\x34")
        self.assertEqual(struct.unpack_from(">H", reply, 6)[0], 1)
        self.assertEqual(reply[-4:], socket.inet_aton("10.124.0.11"))
        self.assertIn("10.124.0.11", line)

    def test_a_known_name_has_an_empty_answer_for_other_types(self):
        reply, _ = dns.answer(query(NAME, 28), ZONE)
        self.assertEqual((reply[3] & 15, struct.unpack_from(">H", reply, 6)[0]), (0, 0))

    def test_an_unknown_name_does_not_exist(self):
        reply, line = dns.answer(query("nobody.graph.svc", dns.A), ZONE)
        self.assertEqual(reply[3] & 15, dns.NXDOMAIN)
        self.assertTrue(line.endswith("NXDOMAIN"))

    def test_broken_queries_are_refused_not_fatal(self):
        whole = query(NAME, dns.A)
        for broken in (b"", whole[:11], whole[:20], whole[:-3], whole[:12] + b"\xff" * 30, whole[:12] + b"\x3f" + b"a" * 10):
            with self.assertRaises((ValueError, IndexError)):
                dns.answer(broken, ZONE)


class StorePing(unittest.TestCase):
    def answer(self, *frames: bytes) -> str | None:
        """What ping.store makes of a peer that sends these bytes and closes."""
        listener = socket.create_server(("127.0.0.1", 0))

        def serve():
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"".join(frames))
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with mock.patch("network.inside"):
                return ping.store("", "127.0.0.1", listener.getsockname()[1], limit=2)
        finally:
            thread.join(5)
            listener.close()

    def test_an_answer_gives_the_identity(self):
        message = b"\x0a" + bytes([len(NAME)]) + NAME.encode() + b"\x10\x05"
        body = b"\0" + struct.pack(">I", len(message)) + message
        settings_frame = ping._frame(ping.SETTINGS, 0, 0, b"")
        headers = ping._frame(ping.HEADERS, ping.END_HEADERS, 1, b"\x88")
        self.assertEqual(self.answer(settings_frame, headers, ping._frame(ping.DATA, 0, 1, body)), NAME)
        self.assertEqual(self.answer(headers, ping._frame(ping.DATA, 0, 1, body[:7]), ping._frame(ping.DATA, 0, 1, body[7:])), NAME)

    def test_anything_else_is_no_answer(self):
        refusal = ping._frame(ping.HEADERS, ping.END_HEADERS | ping.END_STREAM, 1, b"\x88")
        for frames in ([], [b"HTTP/1.1 400 Bad Request\r\n\r\n"], [refusal], [ping._frame(ping.GOAWAY, 0, 0, b"\0" * 8)],
                       [ping._frame(ping.DATA, 0, 1, b"\0\0\0\0\x02\x12\x00")]):
            self.assertIsNone(self.answer(*frames))


class Processes(unittest.TestCase):
    def test_a_process_is_ended_and_only_if_it_is_the_same(self):
        child = subprocess.Popen(["sleep", "60"])
        known = processes.of(child.pid)
        stranger = processes.Process(child.pid, known.start + 1)
        self.assertFalse(stranger.send(signal.SIGKILL))
        self.assertFalse(stranger.alive())
        self.assertEqual(stranger.end(), 0.0)
        self.assertTrue(known.alive())
        known.send(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        self.assertTrue(known.frozen())
        self.assertLess(known.end(), 5)
        self.assertFalse(known.alive())
        child.returncode = 0             # end() has reaped it


class Names(unittest.TestCase):
    def parse(self, *arguments: str) -> settings.Settings:
        parser = argparse.ArgumentParser()
        settings.add_arguments(parser)
        args = parser.parse_args(arguments)
        args.prefix = "x"
        return settings.from_arguments(args)

    def test_mistakes_are_named(self):
        for wrong in (["--net", "10.1"], ["--net", "10.1.300"], ["--pds", "2"], ["--replicas", "4"], ["--stores", "0"], ["--jvm", "server1"],
                      ["--jvm", "server7=-Dx=y"]):
            with self.assertRaises(SystemExit) as raised:
                self.parse(*wrong)
            self.assertIn(wrong[0], str(raised.exception))

    def test_flags_reach_their_part(self):
        self.assertEqual(self.parse("--jvm", "server1=-Da=b").jvm, {"server1": ["-Da=b"]})

    def test_parts(self):
        self.assertEqual(settings.Settings(pds=3, stores=1, servers=2).parts(), ["pd0", "pd1", "pd2", "store0", "server0", "server1"])
        self.assertEqual(settings.dns_name("store1"), NAME)
        for wrong in ("store", "disk1", "1"):
            with self.assertRaises(ValueError):
                settings.kind(wrong)


class Roles(unittest.TestCase):
    def test_every_part_is_told_of_every_pd(self):
        three = settings.Settings(pds=3)
        peers = roles.pd_peers(three)
        self.assertEqual([peer.split(".")[0] for peer in peers], ["hugegraph-pd-0", "hugegraph-pd-1", "hugegraph-pd-2"])
        self.assertIn(f"pd.peers={','.join(peers)}\n", roles._server("server0", three, Path())["graphs/hugegraph.properties"])
        self.assertEqual(roles._store("store0", three, Path())["application.yml"]["pdserver"]["address"], ",".join(peers))
        self.assertEqual(roles._pd("pd1", three, Path())["application.yml"]["raft"]["peers-list"].count(":8610"), 3)

    def test_one_server_may_have_rest_properties_of_its_own(self):
        some = settings.Settings(rest={"server0": {"restserver.max_worker_threads": 4}})
        for part, expected in (("server0", 4), ("server1", 128)):
            self.assertIn(f"restserver.max_worker_threads={expected}\n", roles._server(part, some, Path())["rest-server.properties"])


class Table(unittest.TestCase):
    def row(self, at: int, code: int = 200, good: int = 5) -> timeline.Row:
        verdict = timeline.Verdict(code, "", "Because")
        return timeline.Row(at, verdict, {"server0": verdict}, {"server0": {}}, [], {"server0": Second(5, good, 5 - good)})

    def test_equal_seconds_share_a_line(self):
        lines = timeline.table([self.row(100), self.row(101), self.row(102, 503, 0), self.row(103)], 100.0)
        self.assertEqual([line.split()[0] for line in lines if "node" in line], ["0-1", "2", "3"])
        self.assertIn("REST none 0/5", "\n".join(lines))

    def test_rest_states(self):
        self.assertEqual([Second(5, 5).state(), Second(5, 3, 2).state(), Second(5, 5, 0, 1).state(), Second(5, 0, 5).state(),
                          Second(0, 0, 0, 9).state()], ["good", "part", "part", "none", "none"])


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"test result: {'FAILED' if failed else 'ok'}. {result.testsRun - failed - len(result.skipped)} passed; {failed} failed; "
          f"{len(result.skipped)} ignored")
    raise SystemExit(1 if failed else 0)
