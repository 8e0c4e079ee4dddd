#!/usr/bin/env python3
"""A real HugeGraph cluster on this machine: PD, Stores and Servers, each with its own address, name, cgroup and JVM.

  cluster.py up [--version 1.5.0] [--stores 3] [--servers 2] [--replicas 1] [--jvm server1=-Dsun.net.inetaddr.ttl=30]
  cluster.py status
  cluster.py replace store1 [--how kill|term|cut] [--address OCTET]   same name and data, another address
  cluster.py kill|stop|freeze|thaw|start|remove PART...
  cluster.py enter PART|node COMMAND...
  cluster.py down

The node's namespace PREFIX-node holds the bridge and the name server; each pod has PREFIX-PART-N. Names are those of a
chart's headless Services, hugegraph-store-1.hugegraph-store.graph.svc. Addresses: bridge NET.1, PD NET.5, Stores NET.10
and up, Servers NET.200 and up. pods.yaml in the run folder lists the Servers for the agent.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import uuid

import assemble
import cgroups
import needs
import network
import processes
import roles
import settings as names
import state as states
from settings import Settings
from state import Part, State

START_LIMIT = {"pd": 240.0, "store": 300.0, "server": 300.0}     # seconds until a part must answer; 15 on an idle machine
TERM_LIMIT = 30.0                                                # a Server with stuck workers needs that long


class Ended(RuntimeError):
    """A part ended before it answered."""


class Cluster:
    """The parts of one cluster; every change is written to the state file at once."""

    def __init__(self, state: State):
        self.state = state
        self.settings = state.settings
        self.node = self.settings.node_namespace
        self.outdated: set[str] = set()     # Servers whose JVM may remember an address that a Store has left

    # Starting and ending

    def up(self) -> None:
        """Starts what does not run and waits until each part answers."""
        self._node_up()
        for role in ("pd", "store", "server"):
            parts = [name for name in self.settings.parts() if names.kind(name) == role]
            for name in parts:              # every name resolves before the first process looks one up
                self._place(name)
            # Servers one after the other: each makes what an empty storage lacks, and of two at once one was seen to end
            # for want of an index, also when it was started again.
            for batch in ([[name] for name in parts] if role == "server" else [parts]):
                self._start(batch)

    def _start(self, parts: list[str]) -> None:
        for name in parts:
            self.start(name)
        for name in parts:
            try:
                self.wait(name)
            except Ended as error:          # seen of Servers on a machine with ten times more work than CPUs
                print(f"{error}\n{name} is started once more", flush=True)
                self.start(name)
                self.wait(name)

    def start(self, name: str, address: str | None = None) -> None:
        """Starts a part that does not run; a pod that lost its namespace gets a new one, and a new uid."""
        part = self._place(name, address)
        if part.running():
            return
        folder = self.settings.run / name
        roles.configure(name, self.settings, folder)
        old, part.cgroup = part.cgroup, str(cgroups.container(self.settings.prefix, part.uid, part.restarts))
        part.restarts += 1
        part.ready_after = None
        self.outdated.discard(name)
        part.process = processes.spawn(roles.command(name, self.settings, folder), cgroup=pathlib.Path(part.cgroup),
                                       netns=part.namespace, folder=folder, host=names.pod_name(name))
        self._save()
        if old:
            self._remove_cgroup(old)

    def wait(self, name: str) -> None:
        """Returns when the part answers HTTP; its first 200 is noted as its start-up time."""
        part, role = self.state.parts[name], names.kind(name)
        port, path = names.HEALTH[role]
        begun, limit = time.monotonic(), START_LIMIT[role]
        while part.ready_after is None:
            if not part.running():
                raise Ended(f"{name} ended; its log ends with:\n{self._last_words(name)}")
            if network.get(self.node, part.address, port, path)[0] == 200:
                ticks = os.sysconf("SC_CLK_TCK")
                part.ready_after = round(time.clock_gettime(time.CLOCK_BOOTTIME) - part.process.start / ticks, 1)
                self._save()
                print(f"{name} {part.address} pid {part.process.pid} answers after {part.ready_after} s", flush=True)
            elif time.monotonic() - begun > limit:
                raise TimeoutError(f"{name} does not answer within {limit:.0f} s; see {self.settings.run}/{name}/out.log")
            else:
                time.sleep(0.2)

    def down(self) -> None:
        """Ends everything that `up` and its successors made."""
        for part in self.state.parts.values():
            if part.process:
                part.process.end()
        if self.state.dns:
            self.state.dns.end()
        sweep(self.settings.prefix)

    # Faults

    def kill(self, *parts: str) -> float:
        """SIGKILL to all of them; their namespaces stay, so their addresses refuse connections.

        Returns the Unix time of the last signal; by the return of the call all have ended.
        """
        running = [self._process(name) for name in parts]
        for process in running:
            process.send(signal.SIGKILL)
        at = time.time()
        for process in running:
            process.end()
        return at

    def stop(self, name: str) -> float:
        """SIGTERM, SIGKILL after TERM_LIMIT; returns the seconds it took."""
        return self._process(name).end(grace=TERM_LIMIT)

    def freeze(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def remove(self, name: str) -> None:
        """Ends the part and takes its namespace and its name away: a pod without a successor."""
        part = self._part(name)
        if part.process:
            part.process.end()
        self._unplace(part)

    def replace(self, name: str, how: str = "kill", address: str | None = None) -> str:
        """Moves the part to another address behind the same name, with its data; returns that address.

        kill: SIGKILL, its FINs get out. term: SIGTERM. cut: the link goes first and nothing gets out, as when a node is
        lost. The new process is started, not waited for.
        """
        part = self._part(name)
        old = part.address
        address = address or f"{self.settings.net}.{int(old.rsplit('.', 1)[1]) + 10}"
        taken = [other.name for other in self.state.parts.values() if other.namespace and other.address == address]
        if taken:
            raise RuntimeError(f"{address} is {taken[0]}'s")
        if how == "cut":
            network.cut(self.node, part.veth)
        if part.process:
            part.process.end(grace=TERM_LIMIT if how == "term" else 0.0)
        if how != "cut":
            time.sleep(0.3)                 # the last FINs and RSTs cross the bridge before the veth goes
        self._unplace(part)
        self.start(name, address)
        self.outdated |= {other for other in self.settings.parts() if names.kind(other) == "server"}
        return address

    # Facts for others

    def process(self, name: str) -> processes.Process | None:
        """The part's present process, None while it has none."""
        part = self.state.parts[name]
        return part.process if part.running() else None

    def pods(self) -> list[dict]:
        """The Servers as the agent's pods file lists them."""
        return [{"namespace": names.NAMESPACE, "name": names.pod_name(part.name), "uid": part.uid, "ips": [part.address],
                 "workload": "Deployment/hugegraph-server", "cgroup": part.cgroup,
                 "labels": {"app.kubernetes.io/name": "hugegraph", "app.kubernetes.io/component": "server"}}
                for _, part in sorted(self.state.parts.items())
                if names.kind(part.name) == "server" and part.namespace and part.cgroup]

    # Inside

    def _node_up(self) -> None:
        if self.node not in network.namespaces(self.settings.prefix):
            network.make_node(self.node, self.settings.gateway)
        if not (self.state.dns and self.state.dns.alive()):
            self._save()
            folder = self.settings.run / "node"
            self._resolver(folder, "")
            self.state.dns = processes.spawn(
                [sys.executable, str(processes.HERE / "dns.py"), self.settings.gateway, str(self.settings.run / "zone"),
                 str(self.settings.run / "dns.log")], cgroup=cgroups.helper(self.settings.prefix, "dns"), netns=self.node,
                folder=folder, host="node")
            self._save()

    def _place(self, name: str, address: str | None = None) -> Part:
        """Gives the part a pod: namespace, address, uid, name. Nothing to do while it has one."""
        part = self.state.parts.setdefault(name, Part(name))
        if part.namespace:
            return part
        self.state.made += 1
        part.address = address or part.address or self.settings.first_address(name)
        part.uid, part.restarts = str(uuid.uuid4()), 0
        part.namespace, part.veth = f"{self.settings.prefix}-{name}-{self.state.made}", f"v{self.state.made}-{name}"[:15]
        self._save()                        # first the record, then the thing: a crash leaves nothing unknown
        network.make_pod(self.node, part.namespace, part.veth, part.address, self.settings.gateway)
        own = names.dns_name(name)
        self._resolver(self.settings.run / name, f"{part.address} {own} {names.pod_name(name)}\n")
        self._save()
        return part

    def _unplace(self, part: Part) -> None:
        network.delete(part.namespace, self.node, part.veth)
        self._remove_cgroup(part.cgroup)
        part.namespace = part.veth = part.cgroup = ""
        part.process = None
        self._save()

    def _resolver(self, folder: pathlib.Path, hosts: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "resolv.conf").write_text(f"nameserver {self.settings.gateway}\noptions timeout:1 attempts:2\n")
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")

    def _last_words(self, name: str) -> str:
        log = self.settings.run / name / "out.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(f"    {line[:300]}" for line in lines[-15:])

    def _remove_cgroup(self, path: str) -> None:
        if path:
            cgroups.remove(pathlib.Path(path), cgroups.mount() / self.settings.prefix)

    def _save(self) -> None:
        states.save(self.state)
        run = self.settings.run
        _replace(run / "zone", "".join(f"{names.dns_name(part.name)} {part.address}\n"
                                       for _, part in sorted(self.state.parts.items()) if part.namespace))
        _replace(run / "pods.yaml", "".join(f"- {json.dumps(pod)}\n" for pod in self.pods()) or "[]\n")

    def _part(self, name: str) -> Part:
        if name not in self.state.parts:
            raise RuntimeError(f"{name}: not a part of this cluster ({', '.join(self.state.parts)})")
        return self.state.parts[name]

    def _process(self, name: str) -> processes.Process:
        part = self._part(name)
        if not part.running():
            raise RuntimeError(f"{name} does not run")
        return part.process

    def _signal(self, name: str, number: int) -> None:
        if not self._process(name).send(number):
            raise RuntimeError(f"{name} ended meanwhile")


def _replace(path: pathlib.Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    os.replace(fresh, path)


def sweep(prefix: str) -> None:
    """Removes what carries the prefix, whether a state file knows it or not: processes, cgroups, namespaces, files."""
    ended = cgroups.sweep(prefix)
    if ended:
        print(f"ended {ended} process(es) that no state file knew", flush=True)
    for namespace in network.namespaces(prefix):
        network.delete(namespace)
    shutil.rmtree(Settings(prefix=prefix).run, ignore_errors=True)


def make(settings: Settings) -> Cluster:
    """The cluster with these settings, its jars in place; nothing is started yet."""
    needs.require_root()
    needs.require("ip", "nsenter", "unshare", "mount")
    needs.require_java(settings.java)
    assemble.assemble(settings.version)
    known = states.load(settings.prefix)
    if known and known.settings != settings:
        if any(part.running() for part in known.parts.values()):
            raise RuntimeError(f"a cluster {settings.prefix} with other settings runs; `cluster.py down` ends it")
        known = None
    if known is None:
        sweep(settings.prefix)
    return Cluster(known or State(settings))


def fresh(settings: Settings) -> Cluster:
    """The same, without whatever an earlier run left behind or kept running under the same prefix."""
    needs.require_root()
    needs.require("ip")
    if states.load(settings.prefix) or network.namespaces(settings.prefix):
        print(f"ending what an earlier run left of {settings.prefix}", flush=True)
        sweep(settings.prefix)
    return make(settings)


def _status(cluster: Cluster) -> None:
    print(f"HugeGraph {cluster.settings.version}, {cluster.settings.replicas} replica(s), files in {cluster.settings.run}")
    for name, part in sorted(cluster.state.parts.items()):
        facts = [f"{name:8} {part.address:14} {part.namespace or '-':16}"]
        if part.running():
            status = dict(line.split(":", 1) for line in
                          pathlib.Path(f"/proc/{part.process.pid}/status").read_text().splitlines() if ":" in line)
            facts += [f"pid {part.process.pid}", "frozen" if part.process.frozen() else "running",
                      f"{int(status['VmRSS'].split()[0]) >> 10} MiB", f"{status['Threads'].strip()} threads",
                      f"answered after {part.ready_after} s"]
        else:
            facts.append("down")
        print(" ".join(facts))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", default=os.environ.get("HUGEGRAPH_PREFIX", Settings().prefix),
                        help="names the cluster and all that it makes on the machine")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    names.add_arguments(commands.add_parser("up", help="start what does not run, wait until it answers"))
    commands.add_parser("down", help="end and remove everything, also after a crash")
    commands.add_parser("status", help="one line for each part")
    for name, text in (("start", "start parts where they were, wait"), ("stop", "SIGTERM"), ("kill", "SIGKILL"),
                       ("freeze", "SIGSTOP"), ("thaw", "SIGCONT"), ("remove", "pod and name go, no successor")):
        commands.add_parser(name, help=text).add_argument("parts", nargs="+", metavar="PART")
    replace = commands.add_parser("replace", help="same name and data on another address")
    replace.add_argument("part")
    replace.add_argument("--how", choices=("kill", "term", "cut"), default="kill")
    replace.add_argument("--address", type=int, metavar="OCTET", help="last octet of the new address (old + 10)")
    enter = commands.add_parser("enter", help="run a command in a namespace")
    enter.add_argument("part", help='a part, or "node"')
    enter.add_argument("line", nargs=argparse.REMAINDER, metavar="COMMAND")
    return parser.parse_args()


def main() -> None:
    args = _arguments()
    needs.require_root()
    if args.command == "up":
        settings = names.from_arguments(args)
        with states.Lock(settings.run):
            make(settings).up()
        return
    folder = Settings(prefix=args.prefix).run
    if args.command == "down":
        with states.Lock(folder):
            known = states.load(args.prefix)
            Cluster(known).down() if known else sweep(args.prefix)
        return
    known = states.load(args.prefix)
    if known is None:
        raise RuntimeError(f"no cluster {args.prefix} runs; `cluster.py up` starts one")
    if args.command == "status":
        _status(Cluster(known))
    elif args.command == "enter":
        namespace = known.settings.node_namespace if args.part == "node" else Cluster(known)._part(args.part).namespace
        os.execvp("nsenter", ["nsenter", f"--net=/run/netns/{namespace}", *args.line])
    else:
        with states.Lock(folder):
            _change(Cluster(states.load(args.prefix) or known), args)


def _change(cluster: Cluster, args: argparse.Namespace) -> None:
    if args.command == "replace":
        address = f"{cluster.settings.net}.{args.address}" if args.address else None
        old, new = cluster._part(args.part).address, cluster.replace(args.part, args.how, address)
        print(f"{time.time():.3f} {args.part}: {old} -> {new}", flush=True)
        cluster.wait(args.part)
        return
    for part in args.parts:
        getattr(cluster, args.command)(part)
        print(f"{time.time():.3f} {part} {args.command}", flush=True)
    if args.command == "start":
        for part in args.parts:
            cluster.wait(part)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, TimeoutError, ValueError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(1)
