//! One ping of one Store, from its name to its outcome.

use crate::source::names::{Found, Names, NoAddress};
use std::{future::Future, net::SocketAddr, sync::Arc};
use storewatch_core::{
    id::{Role, TargetId},
    ping::{Phases, PingOutcome},
    topology::Target,
};
use storewatch_hugegraph::{connect::Connection, store::StorePing};
use tokio::{sync::Notify, time::Instant};

/// What is to be done.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Whom to ping.
    pub(super) target: Target,
    /// Where exactly; `None`: where its name says.
    pub(super) remote: Option<SocketAddr>,
    /// When the budget ends.
    pub(super) deadline: Instant,
}

/// How it went.
#[derive(Debug)]
pub(super) struct Done<K> {
    pub(super) remote: Option<SocketAddr>,
    pub(super) fresh: bool,
    pub(super) outcome: PingOutcome,
    pub(super) phases: Phases,
    pub(super) identity: Option<Arc<str>>,
    pub(super) detail: Option<Arc<str>>,
    /// This machine itself kept it from being sent.
    pub(super) local: bool,
    /// The channel for the next ping.
    pub(super) kept: Option<K>,
}

/// Who pings: the real one, or a script in tests.
pub(super) trait Prober: Send + Sync + 'static {
    /// A channel that is kept between pings.
    type Kept: Send + 'static;

    /// Takes note of the targets that will be pinged.
    fn targets(&self, targets: &[Target]);

    /// Pings over `kept`, or over a fresh connection where there is none or it is gone.
    fn ping(&self, order: Order, kept: Option<Self::Kept>) -> impl Future<Output = Done<Self::Kept>> + Send;

    /// The peer has ended this channel.
    fn is_lost(kept: &Self::Kept) -> bool;

    /// Waits until some kept channel may be lost. Cancel-safe.
    fn lost(&self) -> impl Future<Output = ()> + Send;
}

/// The real one, of one cluster.
#[derive(Debug)]
pub(super) struct StoreProber {
    names: Arc<Names>,
    cluster: usize,
    lost: Arc<Notify>,
}

impl StoreProber {
    pub(super) fn new(names: Arc<Names>, cluster: usize) -> Self {
        Self { names, cluster, lost: Arc::new(Notify::new()) }
    }

    fn is_mine(&self, target: &TargetId) -> bool {
        usize::from(target.cluster.0) == self.cluster && target.key.role() == Role::Store
    }
}

impl Prober for StoreProber {
    type Kept = Connection;

    fn targets(&self, targets: &[Target]) {
        self.names.replace(|target| self.is_mine(target), targets.iter().map(|target| (target.id, &target.address)));
    }

    async fn ping(&self, order: Order, kept: Option<Connection>) -> Done<Connection> {
        let Order { target, remote, deadline } = order;
        let contrast = remote.is_some();
        let found = match remote {
            Some(remote) => Ok(Found { remote, dns: None }),
            None => self.names.find(&target.address, deadline).await,
        };
        let Found { remote, dns } = match found {
            Ok(found) => found,
            Err(NoAddress { silent, detail }) => {
                self.names.failed(&target.address, None);
                return Done {
                    remote: None,
                    fresh: true,
                    outcome: if silent { PingOutcome::Deadline } else { PingOutcome::Unreachable },
                    phases: Phases::default(),
                    identity: None,
                    detail: Some(format!("dns: {detail}").into()),
                    local: false,
                    kept: None,
                };
            }
        };
        let ping = StorePing { remote, authority: &target.address, identity: target.identity.as_deref(), deadline };
        // What a contrast finds is told to nobody but the engine.
        let on_close = (!contrast).then(|| Arc::clone(&self.lost));
        let answer = ping.send(kept, on_close).await;
        if !contrast && !answer.outcome.answers() {
            self.names.failed(&target.address, Some(remote.ip()));
        }
        Done {
            remote: Some(remote),
            fresh: answer.fresh,
            outcome: answer.outcome,
            phases: Phases { dns, ..answer.phases },
            identity: answer.identity.map(Into::into),
            detail: answer.detail.map(Into::into),
            local: answer.local,
            kept: answer.kept.filter(|_| !contrast),
        }
    }

    fn is_lost(kept: &Connection) -> bool {
        kept.is_closed()
    }

    async fn lost(&self) {
        self.lost.notified().await;
    }
}
