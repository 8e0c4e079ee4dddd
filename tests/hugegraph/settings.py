"""What a cluster consists of, where its files live, and how its parts are named and addressed.

Every option has an environment variable, so that `make test-hugegraph HUGEGRAPH_VERSION=1.7.0` and a command line say
the same. `up` writes the settings into the state file; later commands on that cluster read them from there.
"""
import argparse
import dataclasses
import os
import pathlib

NAMESPACE = "graph"                                       # the Kubernetes namespace that the names pretend to be in
FIRST_OCTET = {"pd": 5, "store": 10, "server": 200}       # replaced pods move up by ten: stores have room to 199
PORTS = {"pd": 8686, "store": 8500, "server": 8080}       # gRPC of PD and Store, REST of the Server
HEALTH = {"pd": (8620, "/actuator/health"), "store": (8520, "/actuator/health"), "server": (8080, "/versions")}


def home() -> pathlib.Path:
    """The folder outside the tree for jars and running clusters (STOREWATCH_HUGEGRAPH_HOME says otherwise)."""
    chosen = os.environ.get("STOREWATCH_HUGEGRAPH_HOME")
    if chosen:
        return pathlib.Path(chosen).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "storewatch" / "hugegraph"


@dataclasses.dataclass
class Settings:
    """One cluster. `jvm` maps a part ("server1") to further JVM flags, `rest` to REST properties of its own."""
    version: str = "1.5.0"
    prefix: str = "swhg"
    net: str = "10.124.0"
    pds: int = 1
    stores: int = 3
    servers: int = 2
    replicas: int = 1
    workers: int = 128           # the Server's own default, 2 x CPUs, lets one dead Store block every request
    keepalive: int = 300         # PD's store.keepAlive-timeout, seconds: how long a silent Store stays Up
    java: str = "java"
    jvm: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    rest: dict[str, dict[str, object]] = dataclasses.field(default_factory=dict)

    @property
    def jars(self) -> pathlib.Path:
        return home() / "lib" / self.version

    @property
    def run(self) -> pathlib.Path:
        return home() / "run" / self.prefix

    @property
    def gateway(self) -> str:
        return f"{self.net}.1"

    @property
    def node_namespace(self) -> str:
        return f"{self.prefix}-node"

    def parts(self) -> list[str]:
        """All parts in the order in which they start."""
        counts = (("pd", self.pds), ("store", self.stores), ("server", self.servers))
        return [f"{role}{i}" for role, count in counts for i in range(count)]

    def first_address(self, part: str) -> str:
        return f"{self.net}.{FIRST_OCTET[kind(part)] + index(part)}"


def kind(part: str) -> str:
    """"store1" -> "store"."""
    name = part.rstrip("0123456789")
    if name not in FIRST_OCTET or name == part:
        raise ValueError(f"{part}: not a part of a cluster (pd0, store0.., server0..)")
    return name


def index(part: str) -> int:
    """"store1" -> 1."""
    return int(part[len(kind(part)):])


def pod_name(part: str) -> str:
    """The name of the part's pod, which is its host name too."""
    return f"hugegraph-{kind(part)}-{index(part)}"


def dns_name(part: str) -> str:
    """The name behind the headless Service, which outlives the pod's address."""
    return f"{pod_name(part)}.hugegraph-{kind(part)}.{NAMESPACE}.svc"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that shape a new cluster."""
    env, default = os.environ.get, Settings()
    parser.add_argument("--version", default=env("HUGEGRAPH_VERSION", default.version))
    parser.add_argument("--net", default=env("HUGEGRAPH_NET", default.net), help="first three octets of the cluster's /24")
    for name, text in (("pds", "number of PDs"), ("stores", "number of Stores"), ("servers", "number of Servers"),
                       ("replicas", "replicas of each partition; the stale-transport fault needs 1"),
                       ("workers", "REST worker threads of a Server"), ("keepalive", "seconds until PD gives a Store up")):
        parser.add_argument(f"--{name}", type=int, default=int(env(f"HUGEGRAPH_{name.upper()}", getattr(default, name))),
                            help=text)
    parser.add_argument("--java", default=env("HUGEGRAPH_JAVA", default.java), help="the java program to use")
    parser.add_argument("--jvm", action="append", metavar="PART=FLAG", default=env("HUGEGRAPH_JVM", "").split(),
                        help="a further JVM flag for one part, e.g. server1=-Dsun.net.inetaddr.ttl=30")


def from_arguments(args: argparse.Namespace) -> Settings:
    """Settings from parsed options; a mistake ends the program with one line."""
    jvm: dict[str, list[str]] = {}
    for item in args.jvm:
        part, equals, flag = item.partition("=")
        if not equals or not flag.startswith("-"):
            raise SystemExit(f"--jvm {item}: expected PART=-FLAG")
        jvm.setdefault(part, []).append(flag)
    settings = Settings(version=args.version, prefix=args.prefix, net=args.net, pds=args.pds, stores=args.stores,
                        servers=args.servers, replicas=args.replicas, workers=args.workers, keepalive=args.keepalive,
                        java=args.java, jvm=jvm)
    octets = settings.net.split(".")
    if len(octets) != 3 or not all(o.isdigit() and int(o) < 256 for o in octets):
        raise SystemExit(f"--net {settings.net}: expected three octets, e.g. 10.124.0")
    if settings.pds not in (1, 3, 5):
        raise SystemExit("--pds: 1, 3 or 5")
    if not 1 <= settings.stores <= 20 or not 1 <= settings.servers <= 20:
        raise SystemExit("--stores and --servers: 1 to 20")
    if not 1 <= settings.replicas <= settings.stores:
        raise SystemExit(f"--replicas {settings.replicas}: 1 to the number of Stores ({settings.stores})")
    for part in jvm:
        if part not in settings.parts():
            raise SystemExit(f"--jvm {part}: not one of {', '.join(settings.parts())}")
    return settings
