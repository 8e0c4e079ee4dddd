#!/usr/bin/env python3
"""Packs static binaries into an OCI layout tar: one image for each architecture, under one index where there are several.

usage: oci.py --out FILE --name NAME:TAG --version VERSION [--program NAME] [--sbom FILE] [--add FILE=PATH]... ARCH=BINARY...

The same input gives the same bytes: no time but SOURCE_DATE_EPOCH, no owner but root, a fixed order.
"""
import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import tarfile

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
SBOM = "usr/share/storewatch/sbom.cdx.json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"

# As another user than root there is nobody by name; directories are where the chart mounts things.
PASSWD = b"root:x:0:0:root:/:/sbin/nologin\nnobody:x:65532:65532:nobody:/:/sbin/nologin\n"
GROUP = b"root:x:0:\nnobody:x:65532:\n"
FOLDERS = ["etc", "etc/storewatch", "run", "run/storewatch", "usr", "usr/share", "usr/share/storewatch", "var", "var/lib",
           "var/lib/storewatch"]


class Blobs:
    """Content by its digest, in the order of its making."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def add(self, data: bytes, media_type: str) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        self.content[digest] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(self, value: dict, media_type: str) -> dict:
        return self.add(json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), media_type)


def entry(archive: tarfile.TarFile, name: str, data: bytes | None, mode: int, time: int) -> None:
    """A file, or a folder where there is no data."""
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = mode, time
    if data is None:
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
    else:
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))


def layer(program: str, binary: bytes, added: dict[str, bytes], time: int) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in FOLDERS:
            entry(archive, folder, None, 0o755, time)
        entry(archive, "etc/passwd", PASSWD, 0o644, time)
        entry(archive, "etc/group", GROUP, 0o644, time)
        entry(archive, program, binary, 0o755, time)
        folders = set(FOLDERS)
        for path, data in sorted(added.items()):
            for end in (at for at, char in enumerate(path) if char == "/"):
                if path[:end] not in folders:
                    folders.add(path[:end])
                    entry(archive, path[:end], None, 0o755, time)
            entry(archive, path, data, 0o755 if ".so" in path else 0o644, time)
    return raw.getvalue()


def image(blobs: Blobs, arch: str, program: str, binary: bytes, added: dict[str, bytes], version: str,
          time: int) -> dict:
    raw = layer(program, binary, added, time)
    created = datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {"org.opencontainers.image.title": program, "org.opencontainers.image.version": version,
              "org.opencontainers.image.licenses": "Apache-2.0"}
    config = blobs.add_json({
        "created": created, "architecture": arch, "os": "linux",
        "config": {"Entrypoint": [f"/{program}"], "Env": ["PATH=/"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(raw).hexdigest()]},
        "history": [{"created": created, "created_by": "deploy/image/build"}],
    }, CONFIG)
    packed = blobs.add(gzip.compress(raw, 9, mtime=0), LAYER)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [packed], "annotations": labels}
    return blobs.add_json(manifest, MANIFEST) | {"platform": {"architecture": arch, "os": "linux"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--program", default="storewatch")
    parser.add_argument("--sbom")
    parser.add_argument("--add", action="append", default=[], metavar="FILE=PATH")
    parser.add_argument("binaries", nargs="+", metavar="ARCH=BINARY")
    args = parser.parse_args()
    time = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    added = {}
    for each in args.add + ([f"{args.sbom}={SBOM}"] if args.sbom else []):
        path, place = each.split("=", 1)
        with open(path, "rb") as file:
            added[place.strip("/")] = file.read()
    blobs = Blobs()
    images = []
    for each in sorted(args.binaries):
        arch, path = each.split("=", 1)
        with open(path, "rb") as file:
            images.append(image(blobs, arch, args.program, file.read(), added, args.version, time))
    top = images[0] if len(images) == 1 else blobs.add_json(
        {"schemaVersion": 2, "mediaType": INDEX, "manifests": images}, INDEX)
    # A name without a registry is one of the default registry's.
    name = args.name if "/" in args.name else f"docker.io/library/{args.name}"
    top["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1]}
    partial = args.out + ".partial"
    with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as archive:
        entry(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644, time)
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [top]}
        entry(archive, "index.json", json.dumps(index, sort_keys=True).encode(), 0o644, time)
        for folder in ("blobs", "blobs/sha256"):
            entry(archive, folder, None, 0o755, time)
        for digest, data in sorted(blobs.content.items()):
            entry(archive, f"blobs/sha256/{digest}", data, 0o644, time)
    os.replace(partial, args.out)


if __name__ == "__main__":
    main()
