use super::*;
use std::{collections::BTreeSet, path::Path};
use storewatch_core::memory::{ClusterMemory, VerdictMemory};

fn memory(millis: i64) -> Memory {
    Memory { taken_at: MonoTime::from_millis(millis), ..Memory::default() }
}

/// The same, of a node with this verdict.
fn judged(millis: i64, reason: Reason) -> Memory {
    let verdict = VerdictMemory { reason, since: MonoTime::from_millis(millis), ..VerdictMemory::default() };
    let cluster = ClusterMemory { name: "default".into(), verdict, ..ClusterMemory::default() };
    Memory { clusters: vec![cluster], ..memory(millis) }
}

fn file(path: &Path) -> StateFile {
    StateFile::new(path.into(), "node-a")
}

/// The instant of the state in the file.
fn written(path: &Path) -> Option<MonoTime> {
    file(path).load().map(|memory| memory.taken_at)
}

#[test]
fn only_what_is_new_is_taken() {
    let (mut recorder, writer) = channel(file(Path::new("/nowhere")));
    let taken =
        |writer: &Writer| writer.receiver.borrow().as_ref().map(|memory| memory.taken_at.as_nanos() / 1_000_000);
    let mut publish = |changes, millis| {
        recorder.published(changes, MonoTime::from_millis(millis), || memory(millis));
        taken(&writer)
    };
    assert_eq!(publish(1, 1_000), Some(1_000));
    assert_eq!(publish(1, 30_999), Some(1_000), "nothing has changed");
    assert_eq!(publish(2, 30_999), Some(30_999));
    assert_eq!(publish(2, 61_000), Some(61_000), "the clocks inside have gone on for 30 s");
}

#[test]
fn an_engine_that_published_nothing_replaces_nothing() {
    let (recorder, writer) = channel(file(Path::new("/nowhere")));
    recorder.ends(MonoTime::from_millis(5), || memory(5));
    assert!(writer.receiver.borrow().is_none());
    let mut off = Recorder::off();
    off.published(1, MonoTime::from_millis(60_000), || unreachable!("nobody would read it"));
}

#[tokio::test(start_paused = true)]
async fn at_most_one_write_a_second_and_the_last_state_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let (mut recorder, writer) = channel(file(&path));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(writer.run());
    let mut seen = BTreeSet::new();
    for step in 1..=100 {
        let millis = i64::try_from(step * 100).unwrap();
        recorder.published(step, MonoTime::from_millis(millis), || memory(millis));
        tokio::time::sleep(Duration::from_millis(100)).await;
        seen.extend(written(&path));
    }
    assert!((5..=11).contains(&seen.len()), "in ten seconds there were {} writes", seen.len());
    let begun = Instant::now();
    recorder.published(101, MonoTime::from_millis(10_050), || memory(10_050));
    recorder.ends(MonoTime::from_millis(10_100), || memory(10_100));
    tasks.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(written(&path), Some(MonoTime::from_millis(10_100)));
    assert!(begun.elapsed() < SPACING, "the end does not wait for the spacing");
}

/// Longer than a write, shorter than any pause.
const AT_ONCE: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn a_changed_verdict_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let (mut recorder, writer) = channel(file(&path));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(writer.run());
    let mut publish = |generation, millis, reason| {
        recorder.published(generation, MonoTime::from_millis(millis), || judged(millis, reason));
    };
    let until = async |millis| {
        let begun = Instant::now();
        while written(&path) != Some(MonoTime::from_millis(millis)) {
            assert!(begun.elapsed() < 10 * SPACING, "{millis} is never written");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        begun.elapsed()
    };
    publish(1, 1, Reason::StoreAnswering);
    until(1).await;
    publish(2, 2, Reason::StoreAnswering);
    // One that waits for its second is overtaken.
    publish(3, 3, Reason::NoStoreAnswers);
    assert!(until(3).await <= AT_ONCE, "a verdict waits");
    // Nor does the one that follows it at once, as the pods' follow the node's.
    publish(4, 4, Reason::StoreAnswering);
    assert!(until(4).await <= AT_ONCE, "the second verdict waits");
    publish(5, 5, Reason::StoreAnswering);
    assert!(until(5).await >= SPACING - AT_ONCE, "nothing of weight changed, and yet it is written at once");
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_flaps_is_written_in_its_last_state_and_not_too_often() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let (mut recorder, writer) = channel(file(&path));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(writer.run());
    let mut seen = std::collections::BTreeSet::new();
    for step in 1..=200_u32 {
        let reason = if step % 2 == 0 { Reason::StoreAnswering } else { Reason::NoStoreAnswers };
        let millis = i64::from(step) * 10;
        recorder.published(step.into(), MonoTime::from_millis(millis), || judged(millis, reason));
        tokio::time::sleep(Duration::from_millis(10)).await;
        seen.extend(written(&path));
    }
    assert!((BURST..=3 * BURST).contains(&seen.len()), "in two seconds there were {} writes", seen.len());
    recorder.ends(MonoTime::from_millis(2010), || judged(2010, Reason::StoreAnswering));
    tasks.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(written(&path), Some(MonoTime::from_millis(2010)));
}

#[tokio::test]
async fn a_failing_write_is_no_end_and_is_over_when_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("blocked");
    std::fs::write(&blocked, b"a file where a folder should be").unwrap();
    let path = blocked.join("state.json");
    let (_recorder, mut writer) = channel(file(&path));
    let sender = tokio::sync::watch::channel(Some(Arc::new(memory(1)))).0;
    writer.receiver = sender.subscribe();
    writer.write().await;
    let first = writer.failing.clone();
    assert!(first.is_some());
    writer.write().await;
    assert_eq!(writer.failing, first, "the same failure has the same words, so that it is said once");
    std::fs::remove_file(&blocked).unwrap();
    writer.write().await;
    assert_eq!(writer.failing, None);
    assert_eq!(written(&path), Some(MonoTime::from_millis(1)));
}
