//! Keeps the condition of this node's gated pods.

use super::{
    CONCURRENT, GateSettings, MANAGER, election,
    lease::{Ask, NodeLease},
    owner::Owner,
};
use crate::{
    clock,
    config::HealingMode,
    kubernetes::{
        client::{Access, call},
        condition,
        failure::{Failure, Why},
        health::Part,
        objects::Pod,
    },
    observe::ObservationSender,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use rand::Rng as _;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use storewatch_core::{
    gate::{Due, EXITS_SAID, Keeper},
    id::{PodRef, PodUid},
    observation::Observation,
    pod::GateCondition,
    snapshot::{PodView, Snapshot},
    time::MonoTime,
    verdict::{Finding, FindingCode, Reason, Severity},
};
use tokio::{task::JoinSet, time::sleep};

/// How a write ended.
type Written = (PodUid, GateCondition, Result<(), Failure>);

/// The longest sleep: what a clock change or a bug would leave undone is done then.
const LOOK: Duration = Duration::from_secs(5);

/// Runs until the engine ends.
///
/// # Errors
/// When the election has ended that must not.
pub async fn run(
    settings: GateSettings,
    access: Arc<Access>,
    mut publication: tokio::sync::watch::Receiver<Arc<Snapshot>>,
    sender: ObservationSender,
) -> anyhow::Result<()> {
    let client = access.client().await;
    let mut elections = JoinSet::new();
    let owner = Arc::new(Owner::new(client.clone()));
    elections.spawn(election::run(settings.clone(), Arc::clone(&access), client.clone(), Arc::clone(&owner)));
    let leases = Api::namespaced(client.clone(), client.default_namespace());
    let mut writer = Writer {
        settings: settings.clone(),
        client,
        part: access.health().part("readiness gates"),
        lease: NodeLease::new(leases, owner, Arc::clone(&settings.node), access.health().part("node lease")),
        keepers: HashMap::new(),
        writes: JoinSet::new(),
        under_way: BTreeSet::new(),
        started: clock::now(),
        exits_said: None,
    };
    loop {
        let snapshot = Arc::clone(&publication.borrow_and_update());
        let next = writer.turn(&snapshot).await;
        if writer.say_exits(&sender).await.is_err() {
            return Ok(());
        }
        let wait = next.since(clock::now()).min(LOOK);
        tokio::select! {
            changed = publication.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
            Some(ended) = writer.writes.join_next() => writer.ended(ended?),
            Some(ended) = elections.join_next() => {
                ended?;
                anyhow::bail!("the election has ended");
            }
            () = sleep(wait) => {}
        }
    }
}

struct Writer {
    settings: GateSettings,
    client: Client,
    part: Part,
    lease: NodeLease,
    keepers: HashMap<PodUid, Keeper>,
    writes: JoinSet<Written>,
    under_way: BTreeSet<PodUid>,
    started: MonoTime,
    exits_said: Option<(MonoTime, BTreeSet<PodUid>)>,
}

impl Writer {
    /// Begins what is due, and says when to come again.
    async fn turn(&mut self, snapshot: &Snapshot) -> MonoTime {
        let gated: Vec<_> = snapshot
            .pods
            .iter()
            .filter(|pod| pod.record.wiring.as_ref().is_some_and(|wiring| wiring.gate && !wiring.terminating))
            .collect();
        let present: BTreeSet<_> = gated.iter().map(|pod| &pod.record.uid).collect();
        self.keepers.retain(|uid, _| present.contains(uid));
        let now = clock::now();
        let stale = if self.settings.healing == HealingMode::Off { BTreeSet::new() } else { stale(snapshot) };
        let gated = if self.settings.gate { gated } else { Vec::new() };
        // A node without gated pods asks nothing of the API server beside its watches. Before the engine has spoken, a
        // pod is what the state file remembers.
        if (gated.is_empty() && stale.is_empty()) || snapshot.generation == 0 {
            return now + LOOK;
        }
        self.lease.say(self.asks(&gated), stale);
        if self.lease.due(now) <= now {
            self.lease.renew().await;
        }
        let now = clock::now();
        let mut next = self.lease.due(now);
        if !self.lease.held(now) {
            return next;
        }
        for pod in gated {
            let uid = &pod.record.uid;
            if self.under_way.contains(uid) {
                continue;
            }
            let Some(wiring) = &pod.record.wiring else { continue };
            match self.keepers.entry(uid.clone()).or_default().due(wiring, &pod.verdict, self.started, now) {
                Due::Nothing => {}
                Due::At(at) => next = next.min(at),
                // The end of one of those under way comes back here.
                Due::Now(_) if self.under_way.len() >= CONCURRENT => {}
                Due::Now(word) => {
                    let flips = wiring.condition.as_ref().is_none_or(|condition| condition.open != word.open);
                    self.under_way.insert(uid.clone());
                    let write = write(self.client.clone(), pod.record.pod.clone(), uid.clone(), word.clone(), flips);
                    let uid = uid.clone();
                    self.writes.spawn(async move { (uid, word, write.await) });
                }
            }
        }
        next
    }

    fn ended(&mut self, (uid, word, result): Written) {
        self.under_way.remove(&uid);
        let Some(keeper) = self.keepers.get_mut(&uid) else { return };
        match result {
            Ok(()) => {
                self.part.well();
                keeper.wrote(word, clock::now());
            }
            Err(failure) => {
                keeper.failed(clock::now(), rand::rng().random());
                // One that is gone, or replaced by another of its name, is no trouble.
                if !matches!(failure.why, Why::Missing | Why::Conflict) {
                    self.part.fails(failure);
                }
            }
        }
    }

    /// The pods that would leave if this node's guard let them, and those that the elected agent let go.
    fn asks(&self, gated: &[&PodView]) -> BTreeSet<Ask> {
        let granted = self.lease.granted();
        let asks = |pod: &PodView| {
            let held = pod.guard.filter(|guard| guard.holds).map(|guard| guard.reason);
            // Once out, the local guard no longer counts it as held; the exit lasts as long as it is asked for.
            let out = matches!(pod.verdict.reason, Reason::StaleTransport | Reason::PodCannotReachStores)
                && granted.contains(&pod.record.uid);
            let reason = held.or(out.then_some(pod.verdict.reason))?;
            Some(Ask { uid: pod.record.uid.0.to_string(), reason: reason.as_str().to_owned() })
        };
        gated.iter().filter_map(|pod| asks(pod)).collect()
    }

    /// Tells the engine who may leave, on change and often enough to keep it.
    async fn say_exits(&mut self, sender: &ObservationSender) -> Result<(), crate::observe::EngineEnded> {
        let now = clock::now();
        // What was granted under a Lease that is no longer held is no longer granted.
        let granted = if self.lease.held(now) { self.lease.granted().clone() } else { BTreeSet::new() };
        let said = match &self.exits_said {
            None => granted.is_empty(),
            Some((at, said)) => *said == granted && (said.is_empty() || now.since(*at) < EXITS_SAID),
        };
        if !said {
            self.exits_said = Some((now, granted.clone()));
            sender.send(Observation::Exits { at: now, pods: granted }).await?;
        }
        Ok(())
    }
}

/// The pods whose stale transport is confirmed, whatever their verdict is.
fn stale(snapshot: &Snapshot) -> BTreeSet<String> {
    let confirmed = |pod: &&PodView| {
        let critical = |finding: &Finding| {
            finding.code == FindingCode::StaleTransport && finding.severity == Severity::Critical && !finding.carried
        };
        pod.verdict.reason == Reason::StaleTransport || pod.findings.iter().any(critical)
    };
    snapshot.pods.iter().filter(confirmed).map(|pod| pod.record.uid.0.to_string()).collect()
}

/// Writes a condition on the pod of this uid.
async fn write(client: Client, pod: PodRef, uid: PodUid, word: GateCondition, flips: bool) -> Result<(), Failure> {
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let patch = condition::patch(&word, flips, jiff::Timestamp::now(), &uid, None);
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let written = call(api.patch_status(&pod.name, &params, &Patch::Strategic(&patch))).await;
    match &written {
        Ok(_) => tracing::info!(%pod, open = word.open, reason = &*word.reason, "gate written"),
        Err(failure) => {
            tracing::warn!(%pod, open = word.open, why = ?failure.why, "gate not written: {}", failure.words)
        }
    }
    written.map(|_| ())
}
