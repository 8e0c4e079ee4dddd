//! The way to the API server: from `KUBECONFIG`, or as a pod's service account.

use super::{
    failure::{Failure, Why},
    health::Health,
};
use kube::{Client, Config};
use rand::Rng as _;
use std::{fmt, sync::Arc, time::Duration};
use storewatch_core::gate::back_off;
use tokio::sync::OnceCell;

/// A connection is there within this time, or it is not.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest silence of the API server: a watch carries a bookmark each minute even where nothing happens, so that a
/// connection that is silent for longer leads nowhere.
const SILENCE: Duration = Duration::from_secs(90);

/// The longest wait for the answer to one call that is not a watch.
pub const CALL: Duration = Duration::from_secs(10);

/// The first and the longest wait after failures in a row.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// The API server, connected to on first use and shared.
pub struct Access {
    client: OnceCell<Client>,
    health: Arc<Health>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("connected", &self.client.initialized()).finish_non_exhaustive()
    }
}

impl Access {
    /// Not connected yet.
    pub fn new(health: Arc<Health>) -> Self {
        Self { client: OnceCell::new(), health }
    }

    /// The words about each call.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The client; waits until there is a configuration to make it from.
    pub async fn client(&self) -> Client {
        let connect = || async {
            let part = self.health.part("access");
            let mut failures = 0;
            loop {
                match infer().await {
                    Ok(client) => {
                        part.well();
                        return client;
                    }
                    Err(words) => {
                        failures += 1;
                        part.fails(Failure { why: Why::Away, words, retry_after: None });
                        tokio::time::sleep(pause(failures, None)).await;
                    }
                }
            }
        };
        self.client.get_or_init(connect).await.clone()
    }
}

/// A client from `KUBECONFIG`, or as a pod's service account.
///
/// # Errors
/// When there is neither, or when it cannot be used.
pub async fn infer() -> Result<Client, String> {
    let config = Config::infer().await.map_err(|_| {
        "there is no API server to talk to: no service account is mounted, and KUBECONFIG names no usable file"
            .to_owned()
    })?;
    from(config)
}

/// A client with the times that are kept everywhere here.
///
/// # Errors
/// When the configuration cannot be used.
pub fn from(mut config: Config) -> Result<Client, String> {
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config.write_timeout = Some(CALL);
    // Whoever calls knows better when it is worth trying again.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| format!("its configuration cannot be used: {error}"))
}

/// How long to wait after `failures` in a row, at least as long as the server asked for.
pub fn pause(failures: u32, asked: Option<Duration>) -> Duration {
    let own = back_off(failures, RETRY.0, RETRY.1, rand::rng().random());
    asked.map_or(own, |asked| own.max(asked))
}

/// One call, with its time.
///
/// # Errors
/// With what went wrong.
pub async fn call<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(CALL, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Failure::of(&error)),
        Err(_) => Err(Failure::timeout(CALL)),
    }
}
