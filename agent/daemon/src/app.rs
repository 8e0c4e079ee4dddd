//! The composition root: binds, builds, runs, and ends in order. The only place that knows every part.

use crate::{
    ask::{self, Asker},
    clock,
    config::{Config, KernelMode, Listen, PodSource},
    engine::{self, Wiring},
    kubernetes::{client::Access, health::Health},
    observe::{self, ObservationSender},
    publish::{
        self, Publication, events,
        gate::{self, GateSettings},
        metrics::ProgramSeconds,
        serve::{Bound, serve},
    },
    recording,
    requests::{self, ClusterRequests, KernelRequests},
    runtime::{limits, shutdown::Signals, tasks::Tasks, telemetry},
    source::{
        endpoints,
        kernel::{self, KernelHandle, KernelSource},
        names::Names,
        pd,
        pings::{self, Cadence},
        pods::PodsTask,
        processes::Processes,
    },
    state::{Lock, Recorder, StateFile},
};
use anyhow::{Context, Result, bail, ensure};
use futures_util::future::BoxFuture;
use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};
use storewatch_core::{
    judge::Judge,
    source::{SourceName, SourceState},
};
use storewatch_hugegraph::resolve::Resolver;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// How long `/readyz` says that the agent drains before the listeners close: a few requests' time, so that whoever asks
/// often sees it, and short enough that nobody waits for it at an update.
const FAREWELL: Duration = Duration::from_millis(500);

/// How long the publishers may take to end once the agent drains; requests in flight are answered from memory.
const DRAIN: Duration = Duration::from_secs(8);

/// Runs the agent until a signal, and gives the process's exit code. The listeners live on the runtime `surface`.
///
/// # Errors
/// When a listener cannot be bound, when `kernel.mode: required` and the kernel source cannot be had, or when a task that
/// must not end has ended.
pub async fn run(config: Config, surface: Handle) -> Result<ExitCode> {
    telemetry::install(config.log.level, config.log.format);
    limits::raise_open_files();
    for sentence in config.without_effect() {
        tracing::warn!("{sentence}");
    }
    let mut signals = Signals::install().context("cannot install signal handlers")?;
    // Every port is taken before any work begins, so that a second agent fails at once and changes nothing.
    let listen = config.listen.clone();
    let listeners = surface.spawn(async move { Listeners::bind(&listen).await }).await??;
    let draining = CancellationToken::new();
    let stop = CancellationToken::new();
    let mut tasks = Tasks::default();

    let settings = config.settings();
    let mut judge = Judge::new(settings, clock::now());
    let (recorder, _lock) = restore(&mut tasks, &config, &mut judge)?;
    let (publisher, publication) =
        publish::channel(Arc::new(judge.snapshot(clock::now())), config.verdict.on_unknown, draining.clone());
    let (tap, recordings) = recording::channel();
    let publication = publication.with_recordings(recordings);
    let (observations, receiver) = observe::channel();
    let (sender, clusters, kernel) = requests::channel(config.clusters.len());
    let (asker, questions) = ask::channel();
    // Loading the programs takes a while, on this thread; what is known from before is answered meanwhile.
    let programs = Arc::new(OnceLock::<KernelHandle>::new());
    let seconds = Arc::clone(&programs);
    let costs = Box::new(move || seconds.get().and_then(KernelHandle::program_seconds));
    listeners.serve((&mut tasks, &surface), &publication, &asker, costs, &stop);

    let source = open_kernel(&config)?;
    programs.get_or_init(|| source.handle());
    let health = Arc::new(Health::default());
    let access = Arc::new(Access::new(Arc::clone(&health)));
    let processes = Processes::new(sender.process_requests());
    start_sources(&mut tasks, &config, &observations, clusters, (source, kernel), processes, &stop)?;
    start_pods(&mut tasks, &config, &access, &observations, &stop);
    if config.pods.source == PodSource::Kubernetes {
        write_to_kubernetes(&mut tasks, &config, &access, &publication, &observations, &stop);
        let sender = observations.clone();
        tasks.until(&stop, "kubernetes source", async move {
            health.run(sender).await;
            Ok(())
        });
    }
    drop(observations);
    let wiring = Wiring { observations: receiver, requests: sender, questions, publisher, recorder, tap };
    let engine_stop = stop.clone();
    tasks.spawn("engine", async move {
        engine::run(judge, wiring, engine_stop).await;
        Ok(())
    });
    tracing::info!(node = %config.node, version = env!("CARGO_PKG_VERSION"), "running");

    let (code, farewell) = tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "draining");
            (ExitCode::SUCCESS, FAREWELL)
        }
        ended = tasks.ended() => {
            let Some(ended) = ended else { bail!("no task is left") };
            let why = ended.result.err().map_or_else(|| "it returned".to_owned(), |error| format!("{error:#}"));
            tracing::error!(task = ended.name, why, "a task that must not end has ended");
            (ExitCode::FAILURE, Duration::ZERO)
        }
    };
    draining.cancel();
    let end = async {
        tokio::time::sleep(farewell).await;
        stop.cancel();
        while tasks.ended().await.is_some() {}
    };
    tokio::select! {
        signal = signals.next() => {
            tracing::warn!(signal, running = ?tasks.running(), "second signal: aborting");
            Ok(ExitCode::FAILURE)
        }
        () = tokio::time::sleep(DRAIN) => {
            tracing::warn!(running = ?tasks.running(), "not everything ended in time");
            tasks.abort_all();
            Ok(code)
        }
        () = end => {
            tracing::info!("ended");
            Ok(code)
        }
    }
}

/// Gives the judge what an earlier run put away, and starts what keeps it up to date. The lock is held while the agent runs.
fn restore(tasks: &mut Tasks, config: &Config, judge: &mut Judge) -> Result<(Recorder, Option<Lock>)> {
    let Some(path) = &config.state_file else { return Ok((Recorder::off(), None)) };
    let file = StateFile::new(path.clone(), &config.node);
    let lock = file.lock()?;
    if let Some(memory) = file.load() {
        judge.restore(memory, clock::now());
    }
    let (recorder, writer) = file.keep();
    tasks.spawn("state file", writer.run());
    Ok((recorder, lock))
}

/// Starts everything that observes, until `stop`.
fn start_sources(
    tasks: &mut Tasks,
    config: &Config,
    observations: &ObservationSender,
    clusters: Vec<ClusterRequests>,
    (kernel, requests): (KernelSource, KernelRequests),
    processes: Processes,
    stop: &CancellationToken,
) -> Result<()> {
    let mut observe = |name, source: BoxFuture<'static, Result<()>>| tasks.until(stop, name, source);
    let cadence = Cadence {
        interval: config.ping.interval,
        idle_interval: config.ping.idle_interval,
        pd_interval: config.ping.pd_interval,
        dns_interval: config.ping.dns_interval,
        timeout: config.ping.timeout,
        max_stores_per_round: usize::try_from(config.ping.max_stores_per_round)?,
    };
    observe("kernel source", Box::pin(kernel.run(observations.clone(), requests)));

    let names = Arc::new(Names::default());
    let (look_ups, sender) = (Arc::clone(&names), observations.clone());
    observe(
        "dns source",
        Box::pin(async move { Ok(look_ups.run(&Resolver::default(), cadence.dns_interval, &sender).await?) }),
    );
    let peers = config.clusters.iter().map(|cluster| cluster.pd_peers.clone()).collect();
    let (for_pd, sender) = (Arc::clone(&names), observations.clone());
    observe("pd source", Box::pin(async move { Ok(pd::run(cadence, peers, for_pd, sender).await?) }));
    let sender = observations.clone();
    observe("pings source", Box::pin(async move { Ok(pings::run(cadence, clusters, names, sender).await?) }));
    observe("processes source", Box::pin(processes.run(observations.clone())));
    Ok(())
}

/// Starts what tells the pods of this node, and who is behind the targets' names.
fn start_pods(
    tasks: &mut Tasks,
    config: &Config,
    access: &Arc<Access>,
    observations: &ObservationSender,
    stop: &CancellationToken,
) {
    let pods = PodsTask::new(config, Arc::clone(access));
    tasks.until(stop, "pods source", pods.run(observations.clone()));
    if config.pods.source == PodSource::Kubernetes {
        let watching = endpoints::run(Arc::new(config.clone()), Arc::clone(access), observations.clone());
        tasks.until(stop, "endpoints source", watching);
    }
}

/// Starts everything that writes to the API server, until `stop`.
fn write_to_kubernetes(
    tasks: &mut Tasks,
    config: &Config,
    access: &Arc<Access>,
    publication: &Publication,
    observations: &ObservationSender,
    stop: &CancellationToken,
) {
    let settings = GateSettings::new(config);
    if settings.wanted() {
        let (access, sender) = (Arc::clone(access), observations.clone());
        tasks.until(stop, "readiness gate", gate::run(settings, access, publication.subscribe(), sender));
    }
    if config.kubernetes.events {
        let events = events::run(Arc::clone(&config.node), Arc::clone(access), publication.subscribe());
        tasks.until(stop, "kubernetes events", events);
    }
}

/// Loads the kernel part, or says why not.
fn open_kernel(config: &Config) -> Result<KernelSource> {
    let ports: std::collections::BTreeSet<u16> =
        config.clusters.iter().flat_map(|cluster| [cluster.store_port, cluster.pd_port]).collect();
    let source = KernelSource::open(kernel::Settings {
        enabled: config.kernel.mode != KernelMode::Off,
        ports: ports.into_iter().collect(),
        inventory_interval: config.kernel.inventory_interval,
        ..kernel::Settings::default()
    });
    for report in source.reports() {
        let (name, state, detail) = (report.source.as_str(), report.state.as_str(), &report.detail);
        // What is well the engine tells soon.
        if report.state != SourceState::Active {
            tracing::warn!(source = name, state, "{detail}");
        }
        ensure!(
            config.kernel.mode != KernelMode::Required
                || report.source != SourceName::Kernel
                || report.state == SourceState::Active,
            "kernel.mode is `required`, and the kernel source is {state}: {detail}"
        );
    }
    Ok(source)
}

/// The listeners, bound.
struct Listeners {
    probe: Bound,
    metrics: Option<Bound>,
    admin: Option<Bound>,
    admin_socket: Option<Bound>,
}

impl Listeners {
    async fn bind(listen: &Listen) -> Result<Self> {
        Ok(Self {
            probe: Bound::tcp("listen.probe", listen.probe)?,
            metrics: listen.metrics.map(|address| Bound::tcp("listen.metrics", address)).transpose()?,
            admin: listen.admin.map(|address| Bound::tcp("listen.admin", address)).transpose()?,
            admin_socket: match &listen.admin_socket {
                Some(path) => {
                    // Its default lies on a tmpfs: nobody wants to make the directory again after each boot. Where it cannot
                    // be made, binding says what is wrong.
                    if let Some(folder) = path.parent() {
                        drop(std::fs::create_dir_all(folder));
                    }
                    Some(Bound::unix("listen.admin_socket", path.clone()).await?)
                }
                None => None,
            },
        })
    }

    fn serve(
        self,
        (tasks, surface): (&mut Tasks, &Handle),
        publication: &Publication,
        asker: &Asker,
        programs: Box<ProgramSeconds>,
        stop: &CancellationToken,
    ) {
        let bound = [Some(&self.probe), self.metrics.as_ref(), self.admin.as_ref(), self.admin_socket.as_ref()];
        let counters = bound.into_iter().flatten().map(|bound| (bound.key(), bound.counters())).collect();
        if let Some(metrics) = self.metrics {
            let router = publish::metrics::router(publication.clone(), counters, programs);
            tasks.spawn_on(surface, "metrics listener", serve(metrics, router, stop.clone()));
        }
        if let Some(admin) = self.admin {
            // A browser on this machine can be made to send requests here; the socket is out of its reach.
            let router = publish::admin::loopback_router(publication.clone(), asker.clone());
            tasks.spawn_on(surface, "admin listener", serve(admin, router, stop.clone()));
        }
        if let Some(socket) = self.admin_socket {
            let router = publish::admin::router(publication.clone(), asker.clone());
            tasks.spawn_on(surface, "admin socket", serve(socket, router, stop.clone()));
        }
        tasks.spawn_on(
            surface,
            "probe listener",
            serve(self.probe, publish::probe::router(publication.clone()), stop.clone()),
        );
    }
}
