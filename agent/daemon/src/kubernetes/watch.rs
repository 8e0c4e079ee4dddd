//! A set of objects that is kept up to date: list, then watch, from the beginning after every failure.
//!
//! A fresh list after a failure costs little, since every set here is small by its selectors, and it proves what a watch
//! that was taken up again does not show: that the server answers.

use super::{client::pause, failure::Failure, health::Part};
use futures_util::StreamExt as _;
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, fmt::Debug, pin::pin, sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Objects of one set that are kept; what is beyond is told.
const MAX_OBJECTS: usize = 8192;

/// The longest wait for the next part of a list.
const LIST: Duration = Duration::from_secs(15);

/// Namespace and name.
pub type Key = (String, String);

/// A set.
pub type Objects<T> = Arc<BTreeMap<Key, Arc<T>>>;

/// The sending end; `None` before the first whole list.
pub type Sender<T> = watch::Sender<Option<Objects<T>>>;

/// The receiving end.
pub type Receiver<T> = watch::Receiver<Option<Objects<T>>>;

/// Keeps the set until the receivers are gone. `read` takes what is needed of an object, or says that it is none of ours.
pub async fn follow<K, T>(
    api: Api<K>,
    config: watcher::Config,
    part: Part,
    read: impl Fn(K) -> Option<T> + Send,
    set: Sender<T>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    T: PartialEq + Send + Sync + 'static,
{
    let mut failures = 0;
    while !set.is_closed() {
        let mut state = Listing::default();
        let failure = {
            let mut events = pin!(watcher(api.clone(), config.clone()));
            loop {
                let next = if state.listed {
                    tokio::select! {
                        next = events.next() => next,
                        () = set.closed() => return,
                    }
                } else {
                    match timeout(LIST, events.next()).await {
                        Ok(next) => next,
                        Err(_) => break Failure::timeout(LIST),
                    }
                };
                match next {
                    Some(Ok(event)) => {
                        if state.take(event, &read, &set, &part) {
                            failures = 0;
                            part.well();
                        }
                    }
                    Some(Err(error)) => break Failure::of_watch(&error),
                    None => return,
                }
            }
        };
        failures += 1;
        let wait = pause(failures, failure.retry_after);
        part.fails(failure);
        tokio::time::sleep(wait).await;
    }
}

/// A set being listed and followed.
struct Listing<T> {
    objects: BTreeMap<Key, Arc<T>>,
    listed: bool,
    beyond: u64,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: false, beyond: 0 }
    }
}

impl<T: PartialEq> Listing<T> {
    /// Applies an event; true once the list is whole.
    fn take<K: Resource>(
        &mut self,
        event: Event<K>,
        read: &impl Fn(K) -> Option<T>,
        set: &Sender<T>,
        part: &Part,
    ) -> bool {
        match event {
            Event::Init => *self = Self::default(),
            Event::InitApply(object) => self.put(object, read, part),
            Event::InitDone => {
                self.listed = true;
                self.publish(set);
            }
            Event::Apply(object) => {
                self.put(object, read, part);
                self.publish(set);
            }
            Event::Delete(object) => {
                self.objects.remove(&key(&object));
                self.publish(set);
            }
        }
        self.listed
    }

    fn put<K: Resource>(&mut self, object: K, read: &impl Fn(K) -> Option<T>, part: &Part) {
        let key = key(&object);
        match read(object) {
            Some(_) if self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(&key) => {
                self.beyond += 1;
                part.remark(format!("{} objects beyond the first {MAX_OBJECTS} are left out", self.beyond));
            }
            Some(read) => {
                self.objects.insert(key, Arc::new(read));
            }
            None => {
                self.objects.remove(&key);
            }
        }
    }

    fn publish(&self, set: &Sender<T>) {
        if self.listed {
            set.send_if_modified(|present| {
                let changed = present.as_deref() != Some(&self.objects);
                if changed {
                    *present = Some(Arc::new(self.objects.clone()));
                }
                changed
            });
        }
    }
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests;
