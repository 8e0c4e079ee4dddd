#!/usr/bin/env python3
"""The fault that storewatch was made for, on real HugeGraph parts: a Store moves, and one Server goes on asking nobody.

server0 runs as released: its JVM caches names for ever. server1 runs with -Dsun.net.inetaddr.ttl=30. Both get writes
all the time. Every line marked `agent` is taken from the agent's own answers, every line marked `clients` from writes
through the Servers. Takes about five minutes; --keep leaves everything running at the end.
"""
import argparse
import os
import sys
import threading
import time
from collections.abc import Callable

import agent
import cluster as clusters
import moves
import ping
import processes
import rest
import scenarios
import settings as names
import state as states
from cluster import START_LIMIT
from oracle import Oracle
from settings import pod_name

# Shorter than the defaults (60 s, 240 s), longer than a resolving Server needs to find the Store again.
SOONER = {"verdict.stale_suspect_after": "60s", "verdict.stale_confirm_after": "90s"}
PATIENCE = 90.0 + moves.BACKOFF + 30.0


class Story:
    """Tells each change of the agent's answers and of what clients see, once."""

    def __init__(self, cluster: clusters.Cluster, watcher: agent.Agent, oracle: Oracle):
        self.cluster, self.agent, self.oracle = cluster, watcher, oracle
        self.begin = time.time()
        self.told: dict[str, object] = {}

    def say(self, who: str, text: str) -> None:
        print(f"{time.time() - self.begin:6.1f} s  {who:8} {text}", flush=True)

    def watch(self, seconds: float, until=lambda snapshot: False) -> bool:
        """Tells what changes until the condition holds or the time is over; whether it held."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            snapshot = self.agent.api("/v1/snapshot") or {}
            self._tell(snapshot)
            if snapshot and until(snapshot):
                return True
            time.sleep(0.5)
        return False

    def _tell(self, snapshot: dict) -> None:
        answer = snapshot.get("readiness", {})
        self._once("node", (answer.get("reason"), answer.get("message")), "agent",
                   f"node: {answer.get('status')}, {answer.get('reason')}: {answer.get('message')}")
        for pod in snapshot.get("pods", []):
            self._once(pod["name"], (pod["status"], pod["reason"]), "agent",
                       f"{pod['name']}: {pod['status']}, {pod['reason']}: {pod['message']}")
            for finding in pod["findings"]:
                if finding["severity"] == "info":
                    continue                # true of every released Server, fault or not
                key = (pod["name"], finding["code"], finding.get("target"))
                self._once(str(key), "shown", "agent", f"{pod['name']}: {finding['code']}: {finding['message']} "
                           f"[{finding['evidence']}]")
        for server in self.oracle.servers:
            # What holds for three seconds is told; single late writes are not.
            states = {self.oracle.at(server, int(time.time()) - back).state() for back in (2, 3, 4)}
            words = {"good": "all writes succeed", "part": "some writes fail or hang", "none": "no write gets through"}
            if len(states) == 1:
                state = states.pop()
                self._once(f"rest {server}", state, "clients", f"{pod_name(server)}: {words[state]}")

    def watch_while(self, text: str, action: Callable[[], object]) -> object:
        """Does something that takes its time, and tells what changes meanwhile; returns what it returned."""
        self.say("", text)
        result: list[object] = []

        def work() -> None:
            try:
                result.append(action())
            except (RuntimeError, TimeoutError, OSError) as error:
                result.append(error)
        threading.Thread(target=work, daemon=True).start()      # nobody waits for it after Ctrl-C
        self.watch(START_LIMIT["store"], lambda _: bool(result))
        if not result or isinstance(result[0], Exception):
            raise RuntimeError(f"{text}: {result[0] if result else 'not done in time'}")
        return result[0]

    def rest(self, seconds: float) -> bool:
        """Waits until all is well, telling nothing; whether it came to that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pods = (self.agent.api("/v1/snapshot") or {}).get("pods", [])
            if pods and all(pod["ready"] for pod in pods) and self.served():
                return True
            time.sleep(0.5)
        return False

    def served(self) -> bool:
        """Whether all writes of a moment ago succeeded, through both Servers."""
        return all(self.oracle.at(server, int(time.time()) - 2).state() == "good" for server in self.oracle.servers)

    def _once(self, key: str, value: object, who: str, text: str) -> None:
        if self.told.get(key) != value:
            self.told[key] = value
            self.say(who, text)


def tell(cluster: clusters.Cluster, watcher: agent.Agent, oracle: Oracle) -> bool:
    """The story; whether it went as it should."""
    story = Story(cluster, watcher, oracle)

    def pod(snapshot: dict, part: str) -> dict:
        return next((p for p in snapshot["pods"] if p["name"] == pod_name(part)), {"reason": "", "findings": [], "ready": False})

    if not story.rest(120):
        story.say("", "the cluster does not come to rest")
        return False
    story.begin = time.time()
    story.say("", "all is well: PD, three Stores, two Servers and the agent run; clients write through both Servers")
    story.watch(3)
    old, begun = cluster.state.parts["store1"].address, time.time()
    new = cluster.replace("store1", "kill")
    answered = story.watch_while(f"{pod_name('store1')} is replaced: same name, {old} -> {new}, which DNS says at once",
                                 lambda: ping.wait(cluster.node, [new], START_LIMIT["store"]))
    if answered is None:
        raise TimeoutError("the Store does not answer at its new address")
    story.say("", f"{pod_name('store1')} answers at {new}")
    if not story.watch(PATIENCE, lambda snapshot: pod(snapshot, "server0")["reason"] == "StaleTransport"):
        story.say("", "the agent has not taken the stale Server out")
        return False
    out = time.time()
    for part in ("server0", "server1"):
        code, body = watcher.readiness(part)
        story.say("agent", f"GET /readiness/pods/{names.NAMESPACE}/{pod_name(part)}: {code} {body.get('reason')}")
    story.say("agent", f"storewatch explain {names.NAMESPACE}/{pod_name('server0')}\n\n{watcher.explain('server0')}")
    cluster.kill("server0")
    restarted = time.time()
    story.watch_while(f"{pod_name('server0')} is restarted, as the remedy says", lambda: _start(cluster, "server0"))
    healed = story.watch(60, lambda snapshot: pod(snapshot, "server0")["ready"] and story.served())
    ended = time.time()
    story.watch(5)
    left = [f["code"] for f in pod(watcher.api("/v1/snapshot"), "server0")["findings"] if f["severity"] != "info"]
    if not healed or left:
        story.say("", f"not healed: {', '.join(left) or 'writes still fail'}")
        return False
    story.say("", f"healed. The stale Server was taken out {out - begun:.0f} s after its Store had moved, which was "
              f"{out - answered:.0f} s after the Store answered again; it served all writes {ended - restarted:.0f} s after its restart")
    return True


def _start(cluster: clusters.Cluster, part: str) -> None:
    cluster.start(part)
    cluster.wait(part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the cluster and the agent running")
    parser.add_argument("--prefix", default=os.environ.get("HUGEGRAPH_PREFIX", "swhgdemo"))
    names.add_arguments(parser)
    args = parser.parse_args()
    processes.end_in_order()
    base = names.from_arguments(args)
    settings = names.Settings(**{**vars(base), "replicas": 1, "jvm": {**scenarios.RESOLVING, **base.jvm}})
    agent.binary()                          # before anything is started
    with states.Lock(settings.run):
        cluster = clusters.fresh(settings)
        watcher, well = agent.Agent(cluster, SOONER), False
        try:
            cluster.up()
            graph = rest.Graph(cluster.node, cluster.state.parts["server0"].address)
            graph.schema()
            graph.close()
            watcher.start()
            oracle = Oracle(cluster.node, {part: cluster.state.parts[part].address for part in ("server0", "server1")})
            try:
                well = tell(cluster, watcher, oracle)
            finally:
                oracle.close()
        finally:
            if not args.keep or not well:
                processes.undisturbed()
                print("ending everything", flush=True)
                watcher.stop()
                cluster.down()
    if args.keep and well:
        _how_to_go_on(cluster)
    raise SystemExit(0 if well else 1)


def _how_to_go_on(cluster: clusters.Cluster) -> None:
    enter = f"nsenter --net=/run/netns/{cluster.node}"
    tool = f"{os.path.dirname(os.path.abspath(__file__))}/cluster.py --prefix {cluster.settings.prefix}"
    print(f"""
Still running. To look around:
  {enter} curl -s http://127.0.0.1:{agent.PROBE}/readiness
  {enter} curl -s http://127.0.0.1:{agent.ADMIN}/v1/pods
  {enter} curl -s --compressed http://{cluster.state.parts['server0'].address}:8080/graphs
  {tool} status
  {tool} replace store2
  {tool} down         ends everything, the agent too""")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, TimeoutError, ValueError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(1)
    except KeyboardInterrupt:
        raise SystemExit(130)
