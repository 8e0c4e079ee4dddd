//! The active health check of a Store: one `getScanState`, on a kept connection or on a fresh one.

use crate::{
    call::Answer,
    connect::Connection,
    fault::{Fault, bounded},
    identity,
};
use std::{net::SocketAddr, sync::Arc};
use storewatch_core::{
    id::HostPort,
    ping::{Phases, PingOutcome},
};
use storewatch_proto::store::{ScanState, SubStateReq};
use tokio::{sync::Notify, time::Instant};
use tonic::Code;

/// The method's path: its file has no package.
pub const GET_SCAN_STATE: &str = "/HgStoreState/getScanState";

/// Whom to ask, and for how long.
#[derive(Clone, Debug)]
pub struct StorePing<'a> {
    /// The address to connect to.
    pub remote: SocketAddr,
    /// How the Store is called in requests.
    pub authority: &'a HostPort,
    /// The `host:port` that an answer must name; `None` for a Store given by address.
    pub identity: Option<&'a str>,
    /// When the budget ends.
    pub deadline: Instant,
}

/// How a ping ended.
#[derive(Debug)]
pub struct StoreAnswer {
    /// The outcome.
    pub outcome: PingOutcome,
    /// The time of each phase; `dns` is the caller's.
    pub phases: Phases,
    /// A connection was made for it.
    pub fresh: bool,
    /// The address that the Store says is its own, bounded in length.
    pub identity: Option<String>,
    /// What went wrong, in words.
    pub detail: Option<String>,
    /// The ping failed for want of something of this machine's own.
    pub local: bool,
    /// The connection, good for the next ping, if the Store answered on it.
    pub kept: Option<Connection>,
}

impl StorePing<'_> {
    /// Pings over `kept` if it is usable, otherwise over a fresh connection. A kept connection that turns out to be gone
    /// is replaced within the same budget, because its loss alone says nothing of the Store.
    /// `on_close` is notified when the peer ends the connection that is handed back.
    pub async fn send(&self, kept: Option<Connection>, on_close: Option<Arc<Notify>>) -> StoreAnswer {
        let mut phases = Phases::default();
        if let Some(connection) = kept.filter(|kept| !kept.is_closed() && kept.remote() == self.remote) {
            let result = self.ask(&connection, &mut phases).await;
            if !matches!(&result, Err(fault) if fault.lost_connection()) {
                return self.judge(result, phases, false, connection);
            }
        }
        let mut phases = Phases::default();
        match Connection::open(self.remote, self.authority, self.deadline, on_close, &mut phases).await {
            Ok(connection) => {
                let result = self.ask(&connection, &mut phases).await;
                self.judge(result, phases, true, connection)
            }
            Err(fault) => StoreAnswer {
                outcome: fault.outcome(),
                local: fault.is_local(),
                phases,
                fresh: true,
                identity: None,
                detail: Some(fault.to_string()),
                kept: None,
            },
        }
    }

    async fn ask(&self, connection: &Connection, phases: &mut Phases) -> Result<Answer<ScanState>, Fault> {
        let begin = Instant::now();
        let result = connection.unary(GET_SCAN_STATE, &SubStateReq::default(), self.deadline).await;
        phases.rpc = Some(begin.elapsed());
        result
    }

    fn judge(
        &self,
        result: Result<Answer<ScanState>, Fault>,
        phases: Phases,
        fresh: bool,
        connection: Connection,
    ) -> StoreAnswer {
        let mut told = None;
        let local = result.as_ref().is_err_and(Fault::is_local);
        let (outcome, detail) = match result {
            Ok(Answer::Message(state)) => {
                let other = self.identity.filter(|mine| identity::names_another(mine, &state.address, self.remote));
                told = (!state.address.is_empty()).then(|| bounded(&state.address));
                match other {
                    Some(mine) => {
                        let detail = format!("expected {mine}, answered by {}", state.address);
                        (PingOutcome::Identity, Some(bounded(&detail)))
                    }
                    None => (PingOutcome::Serving, None),
                }
            }
            Ok(Answer::Status { code, message, .. }) => {
                (outcome_of(code), Some(bounded(&format!("{code:?}: {message}"))))
            }
            Err(fault) => (fault.outcome(), Some(fault.to_string())),
        };
        let kept = outcome.answers().then_some(connection);
        StoreAnswer { outcome, phases, fresh, identity: told, detail, local, kept }
    }
}

/// What an explicit status from `getScanState` proves. Total: a code that is not named proves nothing.
pub fn outcome_of(code: Code) -> PingOutcome {
    match code {
        Code::Ok | Code::Unimplemented => PingOutcome::Serving,
        Code::Unauthenticated | Code::PermissionDenied => PingOutcome::NotAllowed,
        Code::DeadlineExceeded => PingOutcome::Deadline,
        Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => PingOutcome::Protocol,
    }
}
