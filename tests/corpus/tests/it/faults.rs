//! Any sequence of faults.

use crate::how_many;
use proptest::{collection::vec, prelude::*};
use storewatch_core::verdict::Reason;
use storewatch_tests_corpus::{node::Node, script::Script};

/// One fault or repair, as a line of a scenario without its time.
fn any_fault() -> impl Strategy<Value = String> {
    let cgroup = 100u64..103;
    let host = 1u8..6;
    let store = 1u8..4;
    prop_oneof![
        3 => cgroup.clone().prop_map(|cgroup| format!("block {cgroup}")),
        3 => cgroup.clone().prop_map(|cgroup| format!("unblock {cgroup}")),
        2 => (cgroup, host.clone()).prop_map(|(cgroup, host)| format!("block {cgroup} 10.0.0.{host}")),
        2 => (host.clone(), store.clone()).prop_map(|(host, store)| format!("host 10.0.0.{host} serves store-{store}")),
        2 => host.clone().prop_map(|host| format!("host 10.0.0.{host} refused")),
        1 => host.clone().prop_map(|host| format!("host 10.0.0.{host} gone")),
        1 => host.clone().prop_map(|host| format!("host 10.0.0.{host} hung")),
        3 => (store.clone(), host).prop_map(|(store, host)| format!("dns store-{store} 10.0.0.{host}")),
        1 => store.clone().prop_map(|store| format!("dns store-{store} nx")),
        1 => store.prop_map(|store| format!("dns store-{store} silent")),
        1 => Just("pd down".to_owned()),
        1 => Just("pd up 1=store-1 2=store-2 3=store-3".to_owned()),
        1 => Just("restart 5".to_owned()),
        1 => Just("pods server-0@100 server-1@101 server-2@102:other".to_owned()),
        1 => Just("pods server-0@100 server-1@101".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: how_many(8), ..ProptestConfig::default() })]

    /// Any sequence of faults: the guard holds in every snapshot, and when all is well again for long, so is every pod
    /// that follows DNS.
    #[test]
    fn any_sequence_of_faults(faults in vec((10u64..400, any_fault()), 1..24)) {
        let mut text = String::from("set window 20\nset stale_suspect_after 15\nset stale_confirm_after 40\n");
        let healthy = |at: u64| {
            let mut lines = format!("{at} pd up 1=store-1 2=store-2 3=store-3\n");
            for n in 1..4 {
                lines += &format!("{at} dns store-{n} 10.0.0.{n}\n{at} host 10.0.0.{n} serves store-{n}\n");
            }
            lines + &format!("{at} unblock 100\n{at} unblock 101\n{at} unblock 102\n")
        };
        text += &healthy(0);
        text += "0 pods server-0@100 server-1@101 server-2@102:other\n";
        for (cgroup, name) in [(100, "a"), (101, "b"), (102, "c")] {
            for store in 1..4 {
                text += &format!("0 client {cgroup} {name}{store} store-{store} 30\n");
            }
        }
        for (at, fault) in &faults {
            text += &format!("{at} {fault}\n");
        }
        text += &healthy(400);
        for (cgroup, host) in (100..103).flat_map(|cgroup| (1..6).map(move |host| (cgroup, host))) {
            text += &format!("400 unblock {cgroup} 10.0.0.{host}\n");
        }
        text += "400 pods server-0@100 server-1@101\n900 end\n";
        let course = Node::play(Script::parse("faults", &text));
        for subject in ["node", "server-0", "server-1"] {
            let last = course.verdicts[subject].last().and_then(|(_, reason)| *reason);
            prop_assert_eq!(last, Some(Reason::StoreAnswering), "{}\n{}---\n{}", subject, text, course.show());
        }
    }
}
