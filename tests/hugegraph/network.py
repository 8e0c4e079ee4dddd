"""Network namespaces of the cluster: one bridge in the node's namespace, one veth pair for each pod."""
import contextlib
import ctypes
import http.client
import os
import socket

from processes import run

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NET = 0x40000000


def namespaces(prefix: str) -> list[str]:
    """The named namespaces of a cluster, the node's last."""
    found = [line.split()[0] for line in run("ip", "netns", "list").stdout.splitlines() if line.strip()]
    mine = [name for name in found if name.startswith(f"{prefix}-")]
    return sorted(mine, key=lambda name: name == f"{prefix}-node")


def make_node(name: str, gateway: str) -> None:
    """The node's namespace with the bridge that every pod hangs on; the bridge's address serves DNS."""
    run("ip", "netns", "add", name)
    run("ip", "-n", name, "link", "set", "lo", "up")
    run("ip", "-n", name, "link", "add", "br0", "type", "bridge")
    run("ip", "-n", name, "addr", "add", f"{gateway}/24", "dev", "br0")
    run("ip", "-n", name, "link", "set", "br0", "up")


def make_pod(node: str, name: str, veth: str, address: str, gateway: str) -> None:
    """A pod's namespace: eth0 on the node's bridge, one address of the /24."""
    run("ip", "netns", "add", name)
    run("ip", "-n", node, "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "-n", node, "link", "set", veth, "master", "br0", "up")
    run("ip", "-n", name, "link", "set", "lo", "up")
    run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    run("ip", "-n", name, "link", "set", "eth0", "up")
    run("ip", "-n", name, "route", "add", "default", "via", gateway)


def cut(node: str, veth: str) -> None:
    """Takes the pod's link down on the node's side: nothing leaves it any more, not even a FIN."""
    run("ip", "-n", node, "link", "set", veth, "down")


def delete(name: str, node: str | None = None, veth: str | None = None) -> None:
    """Removes a namespace and, at once, its veth pair (the kernel itself would take its time)."""
    if veth:
        run("ip", "-n", node, "link", "del", veth, check=False)
    run("ip", "netns", "del", name, check=False)


@contextlib.contextmanager
def inside(name: str):
    """Moves the calling thread into a namespace; a socket made there stays there."""
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{name}") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(here.fileno())


def _enter(fd: int) -> None:
    if _LIBC.setns(fd, _NEW_NET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


class Connection(http.client.HTTPConnection):
    """An HTTP connection whose socket lives in a given namespace; `timeout` bounds every single wait."""

    def __init__(self, namespace: str, address: str, port: int, timeout: float):
        super().__init__(address, port, timeout=timeout)
        self.namespace = namespace

    def connect(self) -> None:
        with inside(self.namespace):
            self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect((self.host, self.port))


def get(namespace: str, address: str, port: int, path: str, timeout: float = 2.0) -> tuple[int, bytes]:
    """One GET on a fresh connection; status 0 if there was no answer."""
    connection = Connection(namespace, address, port, timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error).encode()
    finally:
        connection.close()
