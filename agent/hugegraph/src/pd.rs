//! Asking PD for the list of Stores.
//!
//! Every peer is asked by its health service whether its process lives. The list is asked of one peer first, the last that
//! gave it: a follower forwards the call to the leader by itself, but in 1.5.0 and 1.7.0 it may never answer, and without a
//! leader none does. So the others are asked too as soon as the first one fails or is slow; nobody waits for a hung peer
//! beyond the common budget.

use crate::{
    address,
    call::Answer,
    connect::Connection,
    fault::{Fault, Phase, bounded},
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::{collections::HashSet, future::Future, net::SocketAddr, time::Duration};
use storewatch_core::{
    id::HostPort,
    ping::{PeerReport, Phases},
    topology::{ListedStore, ReportedState},
};
use storewatch_proto::{
    health::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus},
    metapb,
    pdpb::{ErrorType, GetAllStoresRequest, GetAllStoresResponse},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};
use tonic::Code;

/// The list call; answered by the leader, or through a follower.
pub const GET_ALL_STORES: &str = "/pdpb.PD/GetAllStores";
/// The health call; answered by every process for itself.
pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// Most Stores taken from one list; far above any cluster, far below what would hurt.
pub const MOST_STORES: usize = 4096;
/// Notes kept about entries that were left out.
const MOST_NOTES: usize = 4;
/// The longest that the first peer is waited for alone.
const HEAD_START: Duration = Duration::from_millis(250);
/// How long a list that has arrived waits for the other peers' words before it is told alone.
const GRACE: Duration = Duration::from_millis(50);

/// A list as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PdList {
    /// The usable entries, in PD's order, each id once.
    pub stores: Vec<ListedStore>,
    /// What was left out, and why: bounded, for operators.
    pub notes: Vec<String>,
}

/// What one attempt showed so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// The peers whose part has ended, in the order of the configuration.
    pub peers: Vec<PeerReport>,
    /// The list, if any peer gave it.
    pub list: Option<PdList>,
}

/// The peers of one cluster's PD.
#[derive(Debug)]
pub struct PdPeers {
    peers: Vec<HostPort>,
    last_good: usize,
}

impl PdPeers {
    /// The configured peers, in their order.
    pub fn new(peers: Vec<HostPort>) -> Self {
        Self { peers, last_good: 0 }
    }

    /// The configured peers, in their order.
    pub fn peers(&self) -> &[HostPort] {
        &self.peers
    }

    /// One attempt, bounded by `budget` for everything. `addresses` gives a peer's addresses by its position, or says why
    /// there are none. When the list is there long before the last peer's word, `early` gets it at once.
    pub async fn attempt<L, F>(&mut self, addresses: L, budget: Duration, mut early: impl FnMut(Attempt)) -> Attempt
    where
        L: Fn(usize) -> F,
        F: Future<Output = Result<Vec<SocketAddr>, Fault>>,
    {
        let begin = Instant::now();
        let deadline = begin + budget;
        let head_start = begin + HEAD_START.min(budget / 4);
        let (gate, _) = watch::channel(Gate::HeadStart);
        let mut running: FuturesUnordered<_> = self
            .peers
            .iter()
            .enumerate()
            .map(|(position, peer)| {
                let gate = (position != self.last_good).then(|| gate.subscribe());
                let addresses = addresses(position);
                async move { (position, ask(peer, addresses, gate, deadline).await) }
            })
            .collect();

        let mut attempt = Attempt::default();
        let mut tell_at: Option<Instant> = None;
        loop {
            tokio::select! {
                ended = running.next() => {
                    let Some((position, peer)) = ended else { break };
                    let (report, list) = peer.report(position);
                    attempt.peers.push(report);
                    if list.is_some() && attempt.list.is_none() {
                        attempt.list = list;
                        self.last_good = position;
                        gate.send_replace(Gate::Listed);
                        tell_at = Some(Instant::now() + GRACE);
                    } else if attempt.list.is_none() && position == self.last_good {
                        gate.send_replace(Gate::Everyone);
                    }
                }
                () = sleep_until(head_start), if *gate.borrow() == Gate::HeadStart => {
                    gate.send_replace(Gate::Everyone);
                }
                () = sleep_until(tell_at.unwrap_or(deadline)), if tell_at.is_some() => {
                    tell_at = None;
                    let mut so_far = attempt.clone();
                    so_far.peers.sort_by_key(|peer| peer.peer);
                    early(so_far);
                }
            }
        }
        attempt.peers.sort_by_key(|peer| peer.peer);
        attempt
    }
}

/// Who asks for the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// The first peer alone.
    HeadStart,
    /// All of them.
    Everyone,
    /// Nobody any more: it is there.
    Listed,
}

/// What one peer showed.
#[derive(Debug)]
struct PeerAnswer {
    health: Option<Result<Answer<HealthCheckResponse>, Fault>>,
    list: Option<Result<Answer<GetAllStoresResponse>, Fault>>,
    /// It could not be asked: there is no address.
    unresolved: bool,
}

async fn ask(
    peer: &HostPort,
    addresses: impl Future<Output = Result<Vec<SocketAddr>, Fault>>,
    gate: Option<watch::Receiver<Gate>>,
    deadline: Instant,
) -> PeerAnswer {
    let addresses = timeout_at(deadline, addresses).await.unwrap_or(Err(Fault::Deadline(Phase::Dns)));
    let unresolved = addresses.is_err();
    let connection = match addresses {
        Ok(addresses) => connect(peer, &addresses, deadline).await,
        Err(fault) => Err(fault),
    };
    let connection = match connection {
        Ok(connection) => connection,
        Err(fault) => return PeerAnswer { health: Some(Err(fault)), list: None, unresolved },
    };
    let health = async {
        let question = HealthCheckRequest::default();
        Some(connection.unary::<_, HealthCheckResponse>(HEALTH_CHECK, &question, deadline).await)
    };
    let list = async {
        let question = GetAllStoresRequest { graph_name: String::new(), exclude_offline_stores: false };
        Some(connection.unary::<_, GetAllStoresResponse>(GET_ALL_STORES, &question, deadline).await)
    };
    tokio::pin!(health, list);
    match gate {
        // The first peer: its list is awaited, its health only until the list is there.
        None => {
            let mut answered = None;
            loop {
                tokio::select! {
                    biased;
                    list = &mut list => {
                        let health = settle(answered, &list, health, deadline).await;
                        return PeerAnswer { health, list, unresolved };
                    }
                    health = &mut health, if answered.is_none() => answered = health,
                }
            }
        }
        Some(mut gate) => {
            let health = health.await;
            let mut other = gate.clone();
            let listed = async {
                // The sender outlives this.
                let _ = other.wait_for(|gate| *gate == Gate::Listed).await;
            };
            let asked = async {
                match gate.wait_for(|gate| *gate != Gate::HeadStart).await.map(|gate| *gate) {
                    Ok(Gate::Everyone) => list.await,
                    _ => None,
                }
            };
            tokio::select! {
                list = asked => PeerAnswer { health, list, unresolved },
                () = listed => PeerAnswer { health, list: None, unresolved },
            }
        }
    }
}

/// The health answer, awaited only where the list does not already prove the process.
async fn settle(
    answered: Option<Result<Answer<HealthCheckResponse>, Fault>>,
    list: &Option<Result<Answer<GetAllStoresResponse>, Fault>>,
    health: impl Future<Output = Option<Result<Answer<HealthCheckResponse>, Fault>>>,
    deadline: Instant,
) -> Option<Result<Answer<HealthCheckResponse>, Fault>> {
    let given = matches!(list, Some(Ok(Answer::Message(answer))) if refusal(answer).is_none());
    if answered.is_some() || given {
        return answered;
    }
    timeout_at(deadline, health).await.ok().flatten()
}

/// Tries the peer's addresses one after the other, each with a fair part of what is left.
async fn connect(peer: &HostPort, addresses: &[SocketAddr], deadline: Instant) -> Result<Connection, Fault> {
    let mut last = Fault::Unreachable("no address known".to_owned());
    for (position, remote) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let parts = u32::try_from(addresses.len() - position).unwrap_or(u32::MAX);
        let part = Instant::now() + left / parts;
        match Connection::open(*remote, peer, part, None, &mut Phases::default()).await {
            Ok(connection) => return Ok(connection),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

impl PeerAnswer {
    fn report(self, position: usize) -> (PeerReport, Option<PdList>) {
        let Self { health, list, unresolved } = self;
        let mut report = PeerReport {
            peer: u16::try_from(position).unwrap_or(u16::MAX),
            alive: false,
            health_serving: None,
            auth_refused: false,
            unresolved,
            error: None,
        };
        let mut error = None;
        match health {
            Some(Ok(Answer::Message(health))) => {
                report.alive = true;
                report.health_serving = Some(health.status == ServingStatus::Serving as i32);
            }
            Some(Ok(Answer::Status { code, message, .. })) => {
                report.alive |= proves_process(code);
                report.auth_refused |= refuses(code);
                error = Some(format!("health: {code:?}: {message}"));
            }
            Some(Err(fault)) => error = Some(fault.to_string()),
            None => {}
        }
        let mut usable = None;
        match list {
            Some(Ok(Answer::Message(answer))) => {
                report.alive = true;
                error = refusal(&answer).map(|refusal| format!("list: {refusal}"));
                usable = error.is_none().then(|| usable_list(answer.stores));
            }
            Some(Ok(Answer::Status { code, message, .. })) => {
                report.alive |= proves_process(code);
                report.auth_refused |= refuses(code);
                error = Some(format!("list: {code:?}: {message}"));
            }
            Some(Err(fault)) => error = Some(format!("list: {fault}")),
            None => {}
        }
        report.error = error.map(|error| bounded(&error).into());
        (report, usable)
    }
}

/// Whether a status from a peer proves that its own process lives. UNAVAILABLE does not: a proxy in between says so too,
/// and a follower relays it from a leader that is gone; its health service tells.
fn proves_process(code: Code) -> bool {
    !matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
}

fn refuses(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied)
}

/// The application error in an answer's header, in words; a header that is missing means none.
fn refusal(answer: &GetAllStoresResponse) -> Option<String> {
    let error = answer.header.as_ref()?.error.as_ref()?;
    (error.r#type != ErrorType::Ok as i32).then(|| {
        let name = ErrorType::try_from(error.r#type).map_or("unnamed", |error| error.as_str_name());
        format!("PD error {} ({name}): {}", error.r#type, error.message)
    })
}

/// Leaves out what cannot be pinged or told apart, and says so.
fn usable_list(entries: Vec<metapb::Store>) -> PdList {
    let mut list = PdList::default();
    let mut left_out = 0_usize;
    let mut seen = HashSet::new();
    for entry in entries {
        let problem = if entry.id == 0 {
            "it has no id".to_owned()
        } else if list.stores.len() >= MOST_STORES {
            format!("more than {MOST_STORES} Stores")
        } else if seen.contains(&entry.id) {
            "its id stands there twice".to_owned()
        } else {
            match address::parse(&entry.address) {
                Ok(address) => {
                    seen.insert(entry.id);
                    list.stores.push(ListedStore { id: entry.id, address, state: reported(entry.state) });
                    continue;
                }
                Err(error) => error.to_string(),
            }
        };
        left_out += 1;
        if list.notes.len() < MOST_NOTES {
            list.notes.push(bounded(&format!("left out Store {} at {:?}: {problem}", entry.id, entry.address)));
        }
    }
    if left_out > list.notes.len() {
        list.notes.push(format!("left out {left_out} in all"));
    }
    list
}

/// PD's number for a Store's state. Total: the enum is open on the wire.
pub fn reported(number: i32) -> ReportedState {
    match metapb::StoreState::try_from(number) {
        Ok(metapb::StoreState::Unknown) => ReportedState::Unknown,
        Ok(metapb::StoreState::Up) => ReportedState::Up,
        Ok(metapb::StoreState::Offline) => ReportedState::Offline,
        Ok(metapb::StoreState::Tombstone) => ReportedState::Tombstone,
        Ok(metapb::StoreState::Pending) => ReportedState::Pending,
        Ok(metapb::StoreState::Exiting) => ReportedState::Exiting,
        Err(_) => ReportedState::Other(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storewatch_proto::pdpb;

    fn entry(id: u64, address: &str, state: i32) -> metapb::Store {
        metapb::Store { id, address: address.to_owned(), state }
    }

    #[test]
    fn each_state_has_its_number() {
        for (number, state) in [
            (0, ReportedState::Unknown),
            (1, ReportedState::Up),
            (2, ReportedState::Offline),
            (3, ReportedState::Tombstone),
            (4, ReportedState::Pending),
            (5, ReportedState::Exiting),
            (6, ReportedState::Other(6)),
            (-1, ReportedState::Other(-1)),
        ] {
            assert_eq!(reported(number), state);
        }
    }

    #[test]
    fn unusable_entries_are_left_out_and_named() {
        let list = usable_list(vec![
            entry(1, "a:8500", 1),
            entry(0, "b:8500", 1),
            entry(2, "c", 1),
            entry(1, "d:8500", 1),
            entry(u64::MAX, "e:8500", 3),
        ]);
        let ids: Vec<u64> = list.stores.iter().map(|store| store.id).collect();
        assert_eq!(ids, [1, u64::MAX]);
        assert_eq!(list.stores[0].address.to_string(), "a:8500");
        assert_eq!(list.notes.len(), 3, "{:?}", list.notes);
    }

    #[test]
    fn a_huge_list_is_cut_and_told() {
        let count = MOST_STORES as u64 + 10;
        let list = usable_list((1..=count).map(|id| entry(id, "a:8500", 1)).collect());
        assert_eq!(list.stores.len(), MOST_STORES);
        assert_eq!(list.notes.last().unwrap(), "left out 10 in all");
        assert!(list.notes.len() <= MOST_NOTES + 1);
    }

    #[test]
    fn errors_in_the_header_are_errors_whatever_their_number() {
        let answer = |number: i32| GetAllStoresResponse {
            header: Some(pdpb::ResponseHeader {
                cluster_id: 0,
                error: Some(pdpb::Error { r#type: number, message: "m".to_owned() }),
            }),
            stores: vec![entry(1, "a:8500", 1)],
        };
        assert_eq!(refusal(&answer(0)), None);
        assert_eq!(refusal(&GetAllStoresResponse::default()), None);
        assert_eq!(refusal(&answer(100)).unwrap(), "PD error 100 (NOT_LEADER): m");
        assert_eq!(refusal(&answer(-1)).unwrap(), "PD error -1 (unnamed): m");
        let peer = PeerAnswer { health: None, list: Some(Ok(Answer::Message(answer(-1)))), unresolved: false };
        let (report, list) = peer.report(2);
        assert!(report.alive && !report.auth_refused && list.is_none() && report.peer == 2, "{report:?}");
    }

    #[test]
    fn an_unavailable_that_was_relayed_proves_nothing_by_itself() {
        let relayed = || {
            Some(Ok(Answer::Status {
                code: Code::Unavailable,
                message: "io exception".to_owned(),
                trailers_only: false,
            }))
        };
        let (alone, _) = PeerAnswer { health: None, list: relayed(), unresolved: false }.report(0);
        assert!(!alone.alive);
        let serving = HealthCheckResponse { status: ServingStatus::Serving as i32 };
        let (follower, _) =
            PeerAnswer { health: Some(Ok(Answer::Message(serving))), list: relayed(), unresolved: false }.report(0);
        assert!(follower.alive && follower.health_serving == Some(true), "{follower:?}");
    }
}
