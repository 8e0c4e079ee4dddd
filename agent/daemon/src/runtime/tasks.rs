//! Named, owned, observed tasks: an ended one is an event, never a silence.

use std::{collections::HashMap, future::Future};
use tokio::{
    runtime::Handle,
    task::{Id, JoinSet},
};
use tokio_util::sync::CancellationToken;

/// Every long-lived task of the agent.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
}

/// A task that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its name.
    pub name: &'static str,
    /// How it ended: a panic is an error like any other.
    pub result: anyhow::Result<()>,
}

impl Tasks {
    /// Starts a task under a name.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.spawn_on(&Handle::current(), name, task);
    }

    /// The same on another runtime.
    pub fn spawn_on(
        &mut self,
        runtime: &Handle,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let handle = self.set.spawn_on(task, runtime);
        self.names.insert(handle.id(), name);
    }

    /// Starts a task that ends when `stop` is cancelled.
    pub fn until(
        &mut self,
        stop: &CancellationToken,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let stop = stop.clone();
        self.spawn(name, async move { stop.run_until_cancelled(task).await.unwrap_or(Ok(())) });
    }

    /// The next task that ends; `None` when none is left. Cancel-safe.
    pub async fn ended(&mut self) -> Option<Ended> {
        let (id, result) = match self.set.join_next_with_id().await? {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(anyhow::Error::new(error).context("it panicked or was aborted"))),
        };
        Some(Ended { name: self.names.remove(&id).unwrap_or("unnamed"), result })
    }

    /// Names of the tasks that still run.
    pub fn running(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.names.values().copied().collect();
        names.sort_unstable();
        names
    }

    /// Ends every task at its next await point.
    pub fn abort_all(&mut self) {
        self.set.abort_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_ended_task_with_its_name() {
        let mut tasks = Tasks::default();
        tasks.spawn("steady", async { Ok(()) });
        tasks.spawn("broken", async { panic!("on purpose") });
        let mut ended = [tasks.ended().await.unwrap(), tasks.ended().await.unwrap()];
        ended.sort_by_key(|task| task.name);
        assert_eq!(ended[0].name, "broken");
        assert!(ended[0].result.is_err());
        assert_eq!(ended[1].name, "steady");
        assert!(ended[1].result.is_ok());
        assert!(tasks.ended().await.is_none());
    }
}
