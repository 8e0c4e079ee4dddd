"""How PD, Store and Server are configured and started: small heaps, one process each, everything else as released."""
import json
import pathlib

from settings import PORTS, Settings, dns_name, index, kind

LOGGING = """<Configuration status="warn">
  <Appenders><Console name="out"><PatternLayout pattern="%d{ISO8601} %p [%t] %c{1} - %m%n"/></Console></Appenders>
  <Loggers><Root level="info"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""
HEAP = {"pd": 256, "store": 384, "server": 512}          # MiB
SMALL_JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", "-XX:MaxMetaspaceSize=256m"]
SCRIPT_PLUGINS = {
    "org.apache.hugegraph.plugin.HugeGraphGremlinPlugin": {},
    "org.apache.tinkerpop.gremlin.server.jsr223.GremlinServerGremlinPlugin": {},
    "org.apache.tinkerpop.gremlin.jsr223.ImportGremlinPlugin": {
        "classImports": ["java.lang.Math"], "methodImports": ["java.lang.Math#*"]},
}
SERIALIZER = {
    "className": "org.apache.tinkerpop.gremlin.driver.ser.GraphSONMessageSerializerV1d0",
    "config": {"serializeResultToString": False, "ioRegistries": ["org.apache.hugegraph.io.HugeGraphIoRegistry"]},
}


def configure(part: str, settings: Settings, folder: pathlib.Path) -> None:
    """Writes the part's configuration under folder/conf, and makes its folder for temporary files."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    files = {"pd": _pd, "store": _store, "server": _server}[kind(part)](part, settings, folder)
    for name, text in {"log4j2.xml": LOGGING, **files}.items():
        path = folder / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))   # JSON is YAML


def command(part: str, settings: Settings, folder: pathlib.Path) -> list[str]:
    """The command line of the part's JVM."""
    role, conf = kind(part), folder / "conf"
    start = [settings.java, *SMALL_JVM, f"-Xmx{HEAP[role]}m", f"-Dlog4j.configurationFile={conf}/log4j2.xml",
             f"-Dlog4j2.configurationFile={conf}/log4j2.xml", f"-Djava.io.tmpdir={folder}/tmp", "-XX:-UsePerfData"]
    further = settings.jvm.get(part, [])
    if role != "server":
        return [*start, "-Dfastjson.parser.safeMode=true", f"-Dspring.config.location={conf}/application.yml", *further,
                "-jar", str(settings.jars / f"{role}.jar")]
    # Our own backend.properties must come first, then the logging binding, then HugeGraph, then the rest.
    jars = sorted((settings.jars / "server").iterdir(),
                  key=lambda jar: (not jar.name.startswith("log4j-slf4j-impl"), not jar.name.startswith("hugegraph"), jar.name))
    return [*start, "--add-modules=jdk.unsupported", "--add-exports=java.base/jdk.internal.reflect=ALL-UNNAMED",
            "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
            # The released start script has it on, and with it the JVM caches names for ever.
            "-Djava.security.manager=org.apache.hugegraph.security.HugeSecurityManager", *further,
            "-cp", ":".join([str(conf), *map(str, jars)]), "org.apache.hugegraph.dist.HugeGraphServer",
            "conf/gremlin-server.yaml", "conf/rest-server.properties"]


def pd_peers(settings: Settings) -> list[str]:
    """Every PD as Stores, Servers and the agent are told."""
    return [f"{dns_name(f'pd{i}')}:{PORTS['pd']}" for i in range(settings.pds)]


def _spring(name: str, folder: pathlib.Path) -> dict:
    return {"spring": {"application": {"name": name}}, "logging": {"config": f"file:{folder}/conf/log4j2.xml"},
            "management": {"endpoints": {"web": {"exposure": {"include": "*"}}},
                           "metrics": {"export": {"prometheus": {"enabled": True}}}}}


def _pd(part: str, settings: Settings, folder: pathlib.Path) -> dict:
    stores = [f"{dns_name(f'store{i}')}:{PORTS['store']}" for i in range(settings.stores)]
    peers = ",".join(f"{dns_name(f'pd{i}')}:8610" for i in range(settings.pds))
    return {"application.yml": {
        **_spring("hugegraph-pd", folder),
        "license": {"verify-path": f"{folder}/conf/none", "license-path": f"{folder}/conf/none"},
        "grpc": {"host": dns_name(part), "port": PORTS["pd"], "netty-server": {"max-inbound-message-size": "100MB"}},
        "server": {"port": 8620},
        "pd": {"data-path": f"{folder}/data", "patrol-interval": 60, "initial-store-count": settings.stores,
               "initial-store-list": ",".join(stores)},
        "raft": {"address": f"{dns_name(part)}:8610", "peers-list": peers, "rpc-timeout": 10000, "snapshotInterval": 300,
                 "metrics": True},
        "store": {"keepAlive-timeout": settings.keepalive, "max-down-time": 172800},
        "partition": {"default-shard-count": settings.replicas, "store-max-shard-count": 6},
        "discovery": {"heartbeat-try-count": 3},
        "thread": {"pool": {"grpc": {"core": 40, "max": 100}}},
    }}


def _store(part: str, settings: Settings, folder: pathlib.Path) -> dict:
    return {"application.yml": {
        **_spring("store-node-grpc-server", folder),
        "pdserver": {"address": ",".join(pd_peers(settings))},
        "grpc": {"host": dns_name(part), "port": PORTS["store"], "netty-server": {"max-inbound-message-size": "1000MB"}},
        "server": {"port": 8520},
        "raft": {"address": f"{dns_name(part)}:8510", "disruptorBufferSize": 1024, "snapshotInterval": 1800,
                 "max-log-file-size": 600000000000},
        "app": {"data-path": f"{folder}/data"},
        "rocksdb": {"total_memory_size": 256 << 20, "write_buffer_size": 8 << 20},
        "thread": {"pool": {"grpc": {"core": 40, "max": 100}, "scan": {"core": 8, "max": 64}}},
    }}


def _server(part: str, settings: Settings, _folder: pathlib.Path) -> dict:
    rest = {"restserver.url": "http://0.0.0.0:8080", "gremlinserver.url": "http://127.0.0.1:8182", "graphs": "./conf/graphs",
            "server.id": part, "server.role": "worker" if index(part) else "master", "usePD": "false",
            "pd.peers": ",".join(pd_peers(settings)), "cluster": "hg", "restserver.request_timeout": 30,
            "restserver.max_worker_threads": settings.workers, **settings.rest.get(part, {})}
    graph = {"gremlin.graph": "org.apache.hugegraph.HugeFactory", "backend": "hstore", "serializer": "binary",
             "store": "hugegraph", "pd.peers": ",".join(pd_peers(settings)), "task.scheduler_type": "local",
             "task.schedule_period": 10,
             "vertex.cache_type": "l2", "edge.cache_type": "l2", "search.text_analyzer": "jieba",
             "search.text_analyzer_mode": "INDEX"}
    gremlin = {"host": "127.0.0.1", "port": 8182, "graphs": {}, "evaluationTimeout": 30000,
               "channelizer": "org.apache.tinkerpop.gremlin.server.channel.WsAndHttpChannelizer",
               "scriptEngines": {"gremlin-groovy": {"plugins": SCRIPT_PLUGINS}}, "serializers": [SERIALIZER]}
    return {"rest-server.properties": _properties(rest), "gremlin-server.yaml": gremlin,
            "graphs/hugegraph.properties": _properties(graph),
            # The Server ends at start if the class of any listed backend is missing; only hstore is on the path.
            "backend.properties": "backends=[hstore]\n"}


def _properties(values: dict) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())
