use super::*;

const T: TargetKey = TargetKey::Store(1);
const U: TargetKey = TargetKey::Store(2);
const SUSPECT: Duration = Duration::from_secs(60);

fn t(seconds: i64) -> MonoTime {
    MonoTime::from_millis(seconds * 1000)
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 8500))
}

fn ownership() -> Ownership {
    let mut all = Ownership::default();
    all.set_listed([T, U].into(), t(0));
    all.answer(ClaimSource::Dns, T, Some(false), &[address(1)], t(0));
    all
}

fn dns(all: &mut Ownership, addresses: &[SocketAddr], at: i64) {
    all.answer(ClaimSource::Dns, T, Some(false), addresses, t(at));
    all.settle(SUSPECT);
}

#[test]
fn a_tenure_ends_dated_back_to_the_first_answer_without_it() {
    let mut all = ownership();
    for at in (100..160).step_by(10) {
        dns(&mut all, &[address(2)], at);
        assert_eq!(all.owner(address(1), t(at)), Owner::Current(T), "at {at}");
    }
    dns(&mut all, &[address(2)], 160);
    assert_eq!(all.owner(address(1), t(160)), Owner::Former(T));
    assert_eq!(all.tenure(T, address(1)).and_then(|tenure| tenure.ended), Some(t(100)));
    assert_eq!(all.owner(address(2), t(160)), Owner::Current(T));
}

#[test]
fn an_answer_with_it_in_between_starts_over() {
    let mut all = ownership();
    dns(&mut all, &[address(2)], 100);
    dns(&mut all, &[address(1), address(2)], 130);
    dns(&mut all, &[address(2)], 140);
    dns(&mut all, &[address(2)], 190);
    assert_eq!(all.owner(address(1), t(190)), Owner::Current(T));
    dns(&mut all, &[address(2)], 200);
    assert_eq!(all.tenure(T, address(1)).and_then(|tenure| tenure.ended), Some(t(140)));
}

#[test]
fn a_target_without_another_address_keeps_the_old_one() {
    let mut all = ownership();
    for at in (100..1000).step_by(10) {
        dns(&mut all, &[], at);
    }
    assert_eq!(all.owner(address(1), t(1000)), Owner::Current(T));
}

#[test]
fn the_other_family_says_nothing_about_this_one() {
    let mut all = ownership();
    let v6: SocketAddr = "[fd00::1]:8500".parse().unwrap();
    for at in (100..300).step_by(10) {
        all.answer(ClaimSource::Dns, T, Some(true), &[v6], t(at));
        all.settle(SUSPECT);
    }
    assert_eq!(all.owner(address(1), t(300)), Owner::Current(T));
}

#[test]
fn an_identity_seen_since_outranks_dns() {
    let mut all = ownership();
    dns(&mut all, &[address(2)], 100);
    all.identity(address(1), &"store-1:8500".into(), Some(T), t(120));
    for at in (130..190).step_by(10) {
        dns(&mut all, &[address(2)], at);
        assert_eq!(all.owner(address(1), t(at)), Owner::Current(T), "at {at}");
    }
    dns(&mut all, &[address(2)], 190);
    assert_eq!(all.tenure(T, address(1)).and_then(|tenure| tenure.ended), Some(t(130)));
}

#[test]
fn a_connection_belongs_to_the_owner_of_its_begin() {
    let mut all = ownership();
    dns(&mut all, &[address(2)], 100);
    dns(&mut all, &[address(2)], 160);
    all.answer(ClaimSource::Dns, U, Some(false), &[address(1)], t(200));
    assert_eq!(all.owner(address(1), t(150)), Owner::Former(T));
    assert_eq!(all.owner(address(1), t(-5)), Owner::Former(T));
    assert_eq!(all.owner(address(1), t(201)), Owner::Current(U));
}

#[test]
fn of_two_claimants_the_one_that_a_ping_saw_wins() {
    let mut all = ownership();
    all.answer(ClaimSource::Dns, U, Some(false), &[address(1)], t(5));
    assert_eq!(all.owner(address(1), t(10)), Owner::Current(U));
    all.identity(address(1), &"store-1:8500".into(), Some(T), t(10));
    assert_eq!(all.owner(address(1), t(11)), Owner::Current(T));
}

#[test]
fn a_removed_target_is_gone_and_has_no_successor() {
    let mut all = ownership();
    all.set_listed([U].into(), t(0));
    assert_eq!(all.owner(address(1), t(10)), Owner::Former(T));
    assert!(!all.exists(T));
    assert_eq!(all.present_owner(address(1)), None);
}

#[test]
fn the_successors_clock_runs_only_while_it_answers() {
    let mut all = ownership();
    dns(&mut all, &[address(2)], 100);
    dns(&mut all, &[address(2)], 160);
    let at = |all: &Ownership, now| all.tenure(T, address(1)).unwrap().successor.elapsed(t(now)).as_secs();
    // An answer from the former address is none of the successor.
    all.ping(T, Some(address(1)), true, t(161));
    assert_eq!(at(&all, 165), 0);
    for now in (170..=200).step_by(2) {
        all.ping(T, Some(address(2)), true, t(now));
    }
    assert_eq!(at(&all, 201), 31);
    all.ping(T, Some(address(2)), false, t(202));
    assert_eq!(at(&all, 220), 30);
    all.ping(T, Some(address(2)), true, t(230));
    assert_eq!(at(&all, 233), 33);
    // A pause of this agent is not an hour of answers.
    all.ping(T, Some(address(2)), true, t(3830));
    assert_eq!(at(&all, 3830), 60);
}

#[test]
fn late_answers_in_the_wrong_order_change_nothing() {
    let mut all = ownership();
    dns(&mut all, &[address(2)], 100);
    all.answer(ClaimSource::Dns, T, Some(false), &[address(1)], t(90));
    dns(&mut all, &[address(2)], 160);
    assert_eq!(all.owner(address(1), t(160)), Owner::Former(T));
}

#[test]
fn memory_is_bounded_and_the_loss_is_counted() {
    let mut all = ownership();
    for n in 0..100_000u32 {
        let address = SocketAddr::from(([11, (n >> 16) as u8, (n >> 8) as u8, n as u8], 8500));
        all.answer(ClaimSource::Dns, TargetKey::Store(u64::from(n % 500)), Some(false), &[address], t(i64::from(n)));
        if n % 1000 == 0 {
            all.settle(SUSPECT);
        }
    }
    assert!(all.all().count() <= MAX_TENURES);
    assert!(all.dropped() > 0);
    assert!(all.take_changes().len() <= MAX_TENURES);
}
