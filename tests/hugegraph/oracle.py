"""What a client of each Server sees, second by second: the yardstick for the agent's verdicts.

Each second every Server gets WRITES writes of keys from a fixed set, spread over the partitions, and one of a key that
was never used. A request that hangs keeps its key out of use until it ends, so a dead Store blocks at most KEYS +
FRESH requests at a Server however long it stays dead, and the seconds after go on telling about the other partitions.
"""
import collections
import dataclasses
import itertools
import threading
import time

import rest

KEYS = 48
WRITES = 4
FRESH = 40
LIMIT = 130.0                            # a request is given up by its client after this many seconds
SLOW = 5.0                               # an answer later than this is none for somebody who waits


@dataclasses.dataclass
class Second:
    """Requests begun in one second through one Server, as known by now."""
    begun: int = 0
    good: int = 0
    bad: int = 0
    stuck: int = 0                       # of all requests to this Server, those open for SLOW or longer at that second
    complaint: str = ""

    def state(self) -> str:
        """good: all is well; none: nothing gets through; part: some partitions do."""
        if self.begun and self.good == self.begun and not self.stuck:
            return "good"
        return "part" if self.good else "none"

    def text(self) -> str:
        return f"{self.good}/{self.begun}" + (f" +{self.stuck} hang" if self.stuck else "")


class Oracle:
    """Writes through the named Servers until it is closed."""

    def __init__(self, namespace: str, servers: dict[str, str]):
        self.namespace = namespace
        self.servers = dict(servers)
        self.seconds: dict[str, dict[int, Second]] = {name: collections.defaultdict(Second) for name in servers}
        self.open: dict[str, dict[object, float]] = {name: {} for name in servers}
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.ticker = threading.Thread(target=self._tick, daemon=True)
        self.ticker.start()

    def at(self, server: str, second: int) -> Second:
        """What is known about that Unix second."""
        with self.lock:
            return dataclasses.replace(self.seconds[server][second])

    def complaints(self, server: str, since: float) -> set[str]:
        """What failed writes were told, without their times, of those begun since then."""
        with self.lock:
            return {entry.complaint.rsplit(" after ", 1)[0] for second, entry in self.seconds[server].items()
                    if second >= since and entry.complaint}

    def close(self) -> None:
        """No further request; those still open are left to their limit."""
        self.closing.set()
        self.ticker.join(5)

    def _tick(self) -> None:
        turn = {name: itertools.cycle(range(KEYS)) for name in self.servers}
        fresh = itertools.count(int(time.time() * 1000) << 8)
        while not self.closing.wait(1 - time.time() % 1):
            second = int(time.time())
            for name in self.servers:
                with self.lock:
                    open_now = self.open[name]
                    self.seconds[name][second].stuck = sum(time.monotonic() - at >= SLOW for at in open_now.values())
                    keys: list[tuple[object, int]] = []
                    for key in itertools.islice(turn[name], KEYS):
                        if key not in open_now and len(keys) < WRITES:
                            keys.append((key, key))
                    if sum(isinstance(key, tuple) for key in open_now) < FRESH:
                        number = next(fresh)
                        keys.append((("fresh", number), number))
                    for key, _ in keys:
                        open_now[key] = time.monotonic()
                    self.seconds[name][second].begun = len(keys)
                for key, number in keys:
                    threading.Thread(target=self._write, args=(name, second, key, number), daemon=True).start()

    def _write(self, name: str, second: int, key: object, number: int) -> None:
        graph = rest.Graph(self.namespace, self.servers[name], LIMIT)
        answer = graph.put(number)
        graph.close()
        with self.lock:
            del self.open[name][key]
            entry = self.seconds[name][second]
            if answer.ok and answer.seconds < SLOW:
                entry.good += 1
            else:
                entry.bad += 1
                entry.complaint = f"{answer.complaint()} after {answer.seconds:.1f} s"


class Load:
    """A steady number of writes per second through each Server, on kept connections; for measurements, not verdicts."""

    def __init__(self, namespace: str, servers: dict[str, str], rate: float, threads: int = 4):
        self.good = self.bad = 0
        self.slowest = 0.0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        pause = threads * len(servers) / rate
        self.threads = [threading.Thread(target=self._work, args=(namespace, address, pause, n), daemon=True)
                        for address in servers.values() for n in range(threads)]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        """Ends after the requests under way."""
        self.closing.set()
        for thread in self.threads:
            thread.join(LIMIT)

    def _work(self, namespace: str, address: str, pause: float, first: int) -> None:
        graph = rest.Graph(namespace, address, LIMIT)
        due = time.monotonic()
        for number in itertools.count(first, 7):
            if self.closing.wait(max(0.0, due - time.monotonic())):
                break
            due = max(due + pause, time.monotonic() - 1)
            answer = graph.put(number % 100_000)
            with self.lock:
                self.good += answer.ok
                self.bad += not answer.ok
                self.slowest = max(self.slowest, answer.seconds)
        graph.close()
