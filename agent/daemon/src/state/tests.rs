use super::{
    StateFile,
    age::{MAX_AGE, revive},
    disk,
    format::{Kept, MAX_BYTES, Refusal, decode, encode},
};
use crate::clock::ClockPair;
use everything::{at, everything, evidence};
use std::{os::unix::fs::PermissionsExt, path::Path, time::Duration};
use storewatch_core::{
    id::TargetKey,
    memory::{ClusterMemory, Evidence, Memory, VerdictMemory},
    verdict::Reason,
};

mod everything;

const NODE: &str = "node-a";

fn kept(memory: Memory, boot: Option<&str>, away: Duration) -> (Kept, ClockPair) {
    let clock = ClockPair::read();
    let taken = clock.date(clock.mono()) - away;
    (Kept { boot: boot.map(Into::into), taken, memory }, clock)
}

fn bytes() -> Vec<u8> {
    encode(&everything(), NODE, &Some("boot-1".into()), &ClockPair::read()).unwrap().0
}

#[test]
fn every_field_comes_back() {
    let clock = ClockPair::read();
    let boot = Some("boot-1".to_owned());
    let (bytes, whole) = encode(&everything(), NODE, &boot, &clock).unwrap();
    assert!(whole);
    let kept = decode(&bytes, NODE).unwrap();
    assert_eq!(kept, Kept { boot, taken: clock.date(at(90_000)), memory: everything() });
    // The whole is one JSON document, for whoever looks into it.
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["state"]["memory"]["clusters"][0]["verdict"]["reason"], "NoStoreAnswers");
}

#[test]
fn no_changed_byte_and_no_cut_goes_unnoticed() {
    let verdict = VerdictMemory { reason: Reason::NoStoreAnswers, since: at(7), ..VerdictMemory::default() };
    let cluster = ClusterMemory { name: "prod".into(), verdict, ..ClusterMemory::default() };
    let memory = Memory { clusters: vec![cluster], ..Memory::default() };
    let (good, _) = encode(&memory, NODE, &Some("boot-1".into()), &ClockPair::read()).unwrap();
    let intact = decode(&good, NODE).unwrap();
    for position in 0..good.len() {
        let mut bad = good.clone();
        for flip in [0x01, 0x20, 0x80] {
            bad[position] = good[position] ^ flip;
            if let Ok(kept) = decode(&bad, NODE) {
                assert_eq!(kept, intact, "a changed byte at {position} changed the meaning");
            }
        }
        let cut = decode(&good[..position], NODE).unwrap_err();
        assert!(matches!(cut, Refusal::Truncated | Refusal::Foreign), "cut at {position}: {cut}");
    }
}

/// Writes `bytes`, loads, and gives what was set aside.
fn after_load(bytes: &[u8]) -> (Option<Memory>, bool, Option<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    std::fs::write(&path, bytes).unwrap();
    let file = StateFile { path: path.clone(), node: NODE.into(), boot: Some("boot-1".into()) };
    (file.load(), path.exists(), std::fs::read(disk::aside(&path)).ok())
}

#[test]
fn each_kind_of_damage_is_set_aside_and_named() {
    let good = bytes();
    let text = String::from_utf8(good.clone()).unwrap();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "cut off"),
        (good[..good.len() / 2].to_vec(), "cut off"),
        (text.replacen("NoStoreAnswers", "StoreAnswering", 1).into_bytes(), "checksum"),
        (text.replacen("\"version\":3", "\"version\":2", 1).into_bytes(), "version is 2"),
        (text.replacen("\"version\":3", "\"version\":4", 1).into_bytes(), "version is 4"),
        (text.replacen("storewatch-state", "otherwatch-state", 1).into_bytes(), "no state file"),
        (b"root:x:0:0:root:/root:/bin/sh\n".to_vec(), "no state file"),
        (b"{\"pods\": []}".to_vec(), "no state file"),
        (vec![0; 4096], "no state file"),
        (encode(&everything(), "node-b", &None, &ClockPair::read()).unwrap().0, "\"node-b\""),
        (
            {
                // A right checksum over what no agent of this version writes.
                let content = b"{\"boot\":null,\"taken\":\"2026-01-01T00:00:00Z\",\"memory\":{}}";
                let sum = format!("{:08x}", crc32fast::hash(content));
                let head = format!(
                    "{{\"format\":\"storewatch-state\",\"version\":3,\"node\":\"node-a\",\"crc32\":\"{sum}\",\"state\":\n"
                );
                [head.as_bytes(), content, b"\n}\n"].concat()
            },
            "makes no sense",
        ),
    ];
    for (bytes, why) in cases {
        let refusal = decode(&bytes, NODE).unwrap_err();
        assert!(refusal.to_string().contains(why), "{refusal} is not {why:?}");
        assert_eq!(after_load(&bytes), (None, false, Some(bytes)), "{why}");
    }
    let (memory, there, aside) = after_load(&good);
    assert!(memory.is_some() && there && aside.is_none());
}

#[test]
fn what_is_too_large_is_neither_read_nor_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    std::fs::File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
    assert!(matches!(disk::read(&path), Err(Refusal::TooLarge)));
    let file = StateFile { path: path.clone(), node: NODE.into(), boot: None };
    assert_eq!(file.load(), None);
    assert!(!path.exists() && disk::aside(&path).exists());

    let mut memory = everything();
    memory.clusters[0].verdict.message = "x".repeat(usize::try_from(MAX_BYTES).unwrap());
    assert!(file.store(&memory).unwrap_err().to_string().contains("more than"));
    assert!(!path.exists());

    // Connections are left out before anything else is.
    let mut memory = everything();
    let evidence = Evidence { remotes: Vec::new(), sockets: vec![evidence().sockets[0]; 200_000] };
    memory.pods[0].containers[0].evidence = Some(evidence);
    assert!(!file.store(&memory).unwrap());
    let kept = decode(&disk::read(&path).unwrap().unwrap(), NODE).unwrap();
    assert_eq!(kept.memory, everything().without_evidence());
    assert!(file.store(&everything()).unwrap());
}

#[test]
fn what_is_no_file_is_left_alone_and_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [pipe.as_path(), folder.path()] {
        assert!(matches!(disk::read(path), Err(Refusal::NoFile)), "{}", path.display());
        let file = StateFile { path: path.into(), node: NODE.into(), boot: None };
        assert_eq!(file.load(), None);
        assert!(path.exists());
    }
    assert!(disk::read(&folder.path().join("none")).unwrap().is_none());
}

#[test]
fn a_write_makes_the_folder_and_replaces_for_root_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/state.json");
    disk::replace(&path, b"one").unwrap();
    // What an interrupted write left behind, with rights that are too wide.
    let leftover = path.with_file_name("state.json.new");
    std::fs::write(&leftover, b"half").unwrap();
    std::fs::set_permissions(&leftover, std::fs::Permissions::from_mode(0o666)).unwrap();
    disk::replace(&path, b"two").unwrap();
    assert_eq!(disk::read(&path).unwrap().unwrap(), b"two");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert!(!leftover.exists());

    let below_a_file = path.join("state.json");
    assert!(disk::replace(&below_a_file, b"three").is_err());
    assert_eq!(disk::read(&path).unwrap().unwrap(), b"two");
}

#[test]
fn on_the_same_boot_verdicts_stand_however_old() {
    let (kept, clock) = kept(everything(), Some("boot-1"), MAX_AGE * 10);
    // This machine has been up for longer than the memory says, so its instants are this boot's.
    assert!(clock.mono() > at(90_000));
    assert_eq!(revive(kept, &Some("boot-1".into()), &clock), Some(everything()));
}

#[test]
fn after_a_reboot_dates_stand_and_containers_do_not() {
    for boot in [Some("boot-0"), None] {
        let (kept, clock) = kept(everything(), boot, Duration::from_secs(3600));
        let revived = revive(kept, &boot.and(Some("boot-1".into())), &clock).unwrap();
        assert_eq!(revived.taken_at, clock.mono() - Duration::from_secs(3600));
        assert_eq!(revived.clusters[0].verdict.since, revived.taken_at - Duration::from_secs(13));
        assert_eq!(revived.clusters[0].list, everything().clusters[0].list);
        assert_eq!(revived.clusters[0].tenures.len(), 3);
        assert!(revived.pods.is_empty());
    }
    let (kept, clock) = kept(everything(), Some("boot-0"), MAX_AGE + Duration::from_secs(1));
    assert_eq!(revive(kept, &Some("boot-1".into()), &clock), None);
}

#[test]
fn a_wall_clock_that_was_set_back_puts_nothing_into_the_future() {
    let clock = ClockPair::read();
    let taken = clock.date(clock.mono()) + Duration::from_secs(86_400);
    let kept = Kept { boot: Some("boot-0".into()), taken, memory: everything() };
    let mut revived = revive(kept, &Some("boot-1".into()), &clock).unwrap();
    revived.map_times(|at| {
        assert!(at <= clock.mono());
        at
    });
}

#[test]
fn former_owners_are_forgotten_in_time_but_not_under_a_container_that_uses_them() {
    let (mut old, clock) = kept(everything(), Some("boot-1"), Duration::ZERO);
    old.memory.map_times(|at| at - MAX_AGE - Duration::from_secs(1_000));
    let boot = Some("boot-1".to_owned());
    let owners =
        |memory: &Memory| -> Vec<TargetKey> { memory.clusters[0].tenures.iter().map(|tenure| tenure.target).collect() };
    let revived = revive(old.clone(), &boot, &clock).unwrap();
    assert_eq!(owners(&revived), [TargetKey::Store(u64::MAX - 1), TargetKey::Static(3)], "Pd(4) left long ago");
    old.memory.pods.clear();
    let revived = revive(old, &boot, &clock).unwrap();
    assert_eq!(owners(&revived), [TargetKey::Static(3)], "what is owned at present has no age");
}

#[test]
fn this_boot_has_a_name() {
    let file = StateFile::new("/nowhere/state.json".into(), NODE);
    assert_eq!(file.boot.map(|id| id.len()), Some(36));
}
