#!/usr/bin/env python3
"""Tests of the image's making and of the tools here that need neither root nor a node. Their count comes last, in cargo's form."""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

from timeline import Row, Timeline

TREE = pathlib.Path(__file__).resolve().parent.parent.parent


def pack(folder: pathlib.Path, name: str, *binaries: str) -> pathlib.Path:
    out = folder / name
    subprocess.run([TREE / "deploy/image/oci.py", "--out", out, "--name", "storewatch:1", "--version", "1",
                    "--add", f"{folder / 'note'}=usr/share/storewatch/note", *binaries], check=True,
                   env={**os.environ, "SOURCE_DATE_EPOCH": "1000000000"})
    return out


class Image(unittest.TestCase):
    """deploy/image/oci.py"""

    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ("one", "two", "note"):
            (self.folder / name).write_text(name)

    def read(self, path: pathlib.Path) -> tuple[dict, dict[str, bytes]]:
        with tarfile.open(path) as archive:
            files = {each.name: archive.extractfile(each).read() for each in archive if each.isfile()}
        return json.loads(files["index.json"]), files

    def test_the_same_input_gives_the_same_bytes(self) -> None:
        first = pack(self.folder, "a.tar", f"amd64={self.folder}/one")
        time.sleep(0.01)
        (self.folder / "one").touch()
        self.assertEqual(first.read_bytes(), pack(self.folder, "b.tar", f"amd64={self.folder}/one").read_bytes())

    def test_every_digest_is_its_contents(self) -> None:
        index, files = self.read(pack(self.folder, "a.tar", f"amd64={self.folder}/one", f"arm64={self.folder}/two"))
        for name, data in files.items():
            if name.startswith("blobs/"):
                self.assertEqual(name, f"blobs/sha256/{hashlib.sha256(data).hexdigest()}")
        top = index["manifests"][0]
        self.assertEqual(top["annotations"]["io.containerd.image.name"], "docker.io/library/storewatch:1")
        images = json.loads(files[f"blobs/sha256/{top['digest'].removeprefix('sha256:')}"])["manifests"]
        self.assertEqual([image["platform"]["architecture"] for image in images], ["amd64", "arm64"])

    def test_the_image_holds_the_program_and_what_was_added(self) -> None:
        index, files = self.read(pack(self.folder, "a.tar", f"amd64={self.folder}/one"))

        def blob(found: dict) -> bytes:
            return files[f"blobs/sha256/{found['digest'].removeprefix('sha256:')}"]
        manifest = json.loads(blob(index["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        self.assertEqual(config["config"]["Entrypoint"], ["/storewatch"])
        layer = self.folder / "layer.tar.gz"
        layer.write_bytes(blob(manifest["layers"][0]))
        with tarfile.open(layer) as archive:
            modes = {each.name: oct(each.mode) for each in archive}
            owners = {(each.uid, each.gid) for each in archive}
        self.assertEqual(modes["storewatch"], "0o755")
        self.assertEqual(modes["usr/share/storewatch/note"], "0o644")
        self.assertEqual(owners, {(0, 0)})
        self.assertFalse([name for name in modes if name.startswith(("bin", "lib", "sbin"))])


class Reading(unittest.TestCase):
    """What a timeline says."""

    def test_repetitions_are_one_and_seconds_without_an_answer_none(self) -> None:
        line = Timeline(None)
        shut, open_ = {"server-0": "False NoStoreAnswers"}, {"server-0": "True StoreAnswering"}
        both = frozenset({"server-0", "server-1"})
        line.rows = [Row(0, open_, both, 3, "200"), Row(1, open_, both, 3, "200"), Row(2, {}, frozenset(), 0, "200", api=False),
                     Row(3, open_, both, 3, "200"), Row(4, shut, frozenset(), 0, "503")]
        self.assertEqual(line.words("server-0"), ["True StoreAnswering", "False NoStoreAnswers"])
        self.assertEqual(line.words("server-1"), [])
        self.assertEqual(line.insides(), [2, 0])
        self.assertIn("no API server", line.rows[2].text())


if __name__ == "__main__":
    ran = unittest.main(exit=False, verbosity=0).result
    bad = len(ran.failures) + len(ran.errors)
    print(f"test result: {'FAILED' if bad else 'ok'}. {ran.testsRun - bad} passed; {bad} failed; {len(ran.skipped)} ignored; 0 measured")
    sys.exit(bad > 0)
