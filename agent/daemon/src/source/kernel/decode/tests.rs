use super::*;
use proptest::prelude::*;

const DECODER: Decoder = Decoder {
    bytes_received: true,
    bytes_acked: true,
    srtt: true,
    total_retrans: true,
    reset_reason: true,
    last_received: true,
    last_sent: true,
};

fn mapped(a: u8, b: u8, c: u8, d: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

fn raw(kind: u8) -> RawEvent {
    RawEvent {
        at: 2_000,
        begun: 1_000,
        socket: 0xffff_8880_0000_1000,
        cgroup: 42,
        evidence: 111 | u64::from(2_u8) << bits::FROM_SHIFT | bits::RESET_RECEIVED | bits::BEGIN_SEEN,
        bytes_received: 501,
        bytes_acked: 11,
        local: mapped(10, 0, 0, 1),
        remote: mapped(10, 0, 0, 2),
        netns: 7,
        tgid: 99,
        srtt_us: 300,
        total_retrans: 1,
        local_port: 40_000,
        remote_port: 8500,
        abi: ABI_VERSION,
        kind,
        state: 2,
        retransmits: 5,
        zero: [0; 7],
    }
}

fn raw_socket() -> RawSocket {
    RawSocket {
        at: 10_000_000_000_000,
        jiffies: (1 << 32) + (10_000 - 300) * 1000,
        socket: 1,
        cgroup: 42,
        bytes_received: 501,
        bytes_acked: 11,
        local: mapped(10, 0, 0, 1),
        remote: [0xfd, 0x51, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        netns: 7,
        tgid: 99,
        srtt_us: 300,
        unanswered: 64,
        last_received: ((1_u64 << 32) + (10_000 - 300) * 1000 - 5000) as u32,
        last_sent: ((1_u64 << 32) + (10_000 - 300) * 1000 + 5000) as u32,
        total_retrans: 1,
        local_port: 40_000,
        remote_port: 8500,
        abi: ABI_VERSION,
        state: 1,
        retransmits: 5,
        pending: 1,
        flags: 0,
        zero: [0; 2],
    }
}

fn bytes<T: aya::Pod>(value: &T) -> Vec<u8> {
    // SAFETY: a `Pod` is its bytes.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }.to_vec()
}

fn event(raw: RawEvent) -> Result<ConnectionEvent, DecodeError> {
    DECODER.event(&bytes(&raw))
}

#[test]
fn any_length_but_one_record_is_refused() {
    let whole = bytes(&raw(kind::BEGUN));
    for len in (0..whole.len()).chain([whole.len() + 1, whole.len() * 2]) {
        let mut cut = whole.clone();
        cut.resize(len, 0);
        assert_eq!(DECODER.event(&cut), Err(DecodeError::Length(len, 120)));
        assert_eq!(DECODER.socket(&cut, &Ticks::default()), Err(DecodeError::Length(len, 120)));
    }
}

#[test]
fn what_has_no_meaning_is_refused_by_name() {
    let base = raw(kind::FAILED);
    let cases = [
        (RawEvent { abi: ABI_VERSION + 1, ..base }, DecodeError::Abi(ABI_VERSION + 1)),
        (RawEvent { kind: 0, ..base }, DecodeError::Kind(0)),
        (RawEvent { kind: kind::COUNT, ..base }, DecodeError::Kind(kind::COUNT)),
        (RawEvent { kind: 255, ..base }, DecodeError::Kind(255)),
        (RawEvent { at: u64::MAX, ..base }, DecodeError::Time(u64::MAX)),
        (RawEvent { begun: 1 << 63, ..base }, DecodeError::Time(1 << 63)),
        (RawEvent { evidence: 1 << 63, ..base }, DecodeError::Evidence(1 << 63)),
        (RawEvent { evidence: 15 << bits::FROM_SHIFT, ..base }, DecodeError::State(15)),
        (RawEvent { remote_port: 0, ..base }, DecodeError::Port),
        (RawEvent { kind: kind::RESET_RECEIVED, state: 13, ..base }, DecodeError::State(13)),
    ];
    for (raw, error) in cases {
        assert_eq!(event(raw), Err(error), "{raw:?}");
    }
}

#[test]
fn every_kind_is_translated() {
    let begun = Some(MonoTime::from_nanos(1_000));
    let evidence = KernelEvidence {
        from: Some(TcpState::SynSent),
        error: 111,
        reset_received: true,
        retransmits: 5,
        ..KernelEvidence::default()
    };
    let cases = [
        (kind::BEGUN, ConnectionChange::Begun),
        (kind::ESTABLISHED, ConnectionChange::Established { begun }),
        (kind::FAILED, ConnectionChange::Failed { begun, evidence }),
        (kind::ENDED, ConnectionChange::Ended { begun, evidence, bytes_received: Some(501) }),
        (kind::RESET_RECEIVED, ConnectionChange::ResetReceived { state: TcpState::SynSent }),
        (kind::RESET_SENT, ConnectionChange::ResetSent { state: Some(TcpState::SynSent), reason: Some(0) }),
        (kind::RETRANSMIT, ConnectionChange::Retransmit { state: TcpState::SynSent, count: 5 }),
        (kind::ERROR, ConnectionChange::ErrorReported { errno: 0, state: TcpState::SynSent }),
    ];
    for (kind, what) in cases {
        let event = event(raw(kind)).unwrap();
        assert_eq!(event.what, what);
        assert_eq!(event.local, "10.0.0.1:40000".parse().unwrap());
        assert_eq!(event.remote, "10.0.0.2:8500".parse().unwrap());
        assert_eq!((event.rtt, event.retransmits_total), (Some(Duration::from_micros(300)), Some(1)));
        assert_eq!(event.owner, SocketOwner { cgroup: Some(CgroupId(42)), netns: Some(NetnsId(7)), pid: Some(99) });
    }
}

#[test]
fn zero_is_none_where_the_kernel_did_not_know() {
    let event = event(RawEvent { begun: 0, cgroup: 0, netns: 0, tgid: 0, ..raw(kind::ESTABLISHED) }).unwrap();
    assert_eq!(event.what, ConnectionChange::Established { begun: None });
    assert_eq!(event.owner, SocketOwner { cgroup: None, netns: None, pid: None });
}

#[test]
fn a_fin_is_no_payload_and_an_absent_field_is_unknown() {
    let ended = RawEvent { evidence: bits::FIN_RECEIVED, ..raw(kind::ENDED) };
    let received = |decoder: &Decoder| match decoder.event(&bytes(&ended)).unwrap().what {
        ConnectionChange::Ended { bytes_received, .. } => bytes_received,
        other => panic!("{other:?}"),
    };
    assert_eq!(received(&DECODER), Some(500));
    assert_eq!(received(&Decoder::new(&Offsets::NONE)), None);
}

#[test]
fn evidence_is_unpacked_bit_by_bit() {
    let word = 110
        | 113 << bits::SOFT_SHIFT
        | 111 << bits::REPORTED_SHIFT
        | bits::REPORTED
        | 15 << bits::RESET_REASON_SHIFT
        | bits::RESET_SENT
        | 3 << bits::RETRANSMITS_SHIFT
        | bits::NO_SOURCE_PORT
        | bits::IN_PROCESS
        | bits::UNANSWERED;
    let expected = KernelEvidence {
        from: None,
        error: 110,
        soft_error: 113,
        reported: Some(111),
        retransmits: 3,
        no_source_port: true,
        in_process: true,
        reset_received: false,
        reset_sent: Some(15),
        unanswered: true,
    };
    assert_eq!(evidence(word), Ok(expected));
    assert_eq!(evidence(0), Ok(KernelEvidence::default()));
    // Without their flags the numbers beside them say nothing.
    assert_eq!(evidence(111 << bits::REPORTED_SHIFT).unwrap().reported, None);
}

#[test]
fn a_socket_of_the_inventory_is_translated() {
    let mut ticks = Ticks::default();
    let raw = raw_socket();
    ticks.learn(raw.jiffies, raw.at);
    let socket = DECODER.socket(&bytes(&raw), &ticks).unwrap().unwrap();
    assert_eq!(socket.remote, "[fd51::2]:8500".parse().unwrap());
    assert_eq!((socket.bytes_received, socket.bytes_acked, socket.unanswered), (Some(501), Some(10), 64));
    assert!(socket.retransmitting);
    assert_eq!((socket.rtt, socket.retransmits_total), (Some(Duration::from_micros(300)), Some(1)));
    assert_eq!(socket.last_received, Some(MonoTime::from_nanos(9_995_000_000_000)));
    assert_eq!(socket.last_sent, None, "a tick in the future was never set");
    let finished = RawSocket { flags: FIN_RECEIVED, state: 8, pending: 0, ..raw };
    let socket = DECODER.socket(&bytes(&finished), &ticks).unwrap().unwrap();
    assert_eq!((socket.bytes_received, socket.retransmitting), (Some(500), false));
    let dialling = RawSocket { state: 2, unanswered: 1, bytes_acked: 0, ..raw };
    let socket = DECODER.socket(&bytes(&dialling), &ticks).unwrap().unwrap();
    assert_eq!((socket.unanswered, socket.bytes_acked), (0, Some(0)), "a SYN is no data");
    assert_eq!((socket.last_received, socket.last_sent), (None, None), "and no use");
    assert_eq!(DECODER.socket(&bytes(&RawSocket { flags: OWN, ..raw }), &ticks), Ok(None));
}

#[test]
fn counters_of_all_cpus_are_one() {
    let count = |count, first, last_begun, last_ended| Count { count, first, last_begun, last_ended, ..Count::ZERO };
    let total = sum(&[count(2, 50, 10, 60), Count::ZERO, count(3, 40, 30, 45)]);
    assert_eq!(total, count(5, 40, 30, 60));
    assert_eq!(sum(&[]), Count::ZERO);
    assert_eq!(sum(&[count(u64::MAX, 1, 1, 1), count(2, 1, 1, 1)]).count, u64::MAX);
}

#[test]
fn counter_keys_are_translated_or_refused() {
    let key = CountKey {
        cgroup: 42,
        evidence: 0,
        remote: mapped(10, 0, 0, 2),
        netns: 7,
        port: 8500,
        kind: kind::RETRANSMIT,
        zero: 0,
    };
    let (owner, remote, what) = count_key(&key, false).unwrap().unwrap();
    assert_eq!(owner, Some(SocketOwner { cgroup: Some(CgroupId(42)), netns: Some(NetnsId(7)), pid: None }));
    assert_eq!((remote, what), ("10.0.0.2:8500".parse().unwrap(), Counted::Retransmits));
    assert_eq!(count_key(&key, true).unwrap().unwrap().0, None);
    assert_eq!(count_key(&CountKey { kind: kind::ERROR, ..key }, false), Ok(None));
    assert_eq!(count_key(&CountKey { kind: 77, ..key }, false), Err(DecodeError::Kind(77)));
    assert_eq!(count_key(&CountKey { port: 0, ..key }, false), Err(DecodeError::Port));
}

proptest! {
    /// Programs of another version may mean anything by the same bytes: their records are refused by that version alone.
    #[test]
    fn a_record_of_another_version_is_refused_by_its_version(mut bytes in proptest::collection::vec(any::<u8>(), 120), version in any::<u16>()) {
        prop_assume!(version != ABI_VERSION);
        // The version stands at another place in each of the two.
        let event = std::mem::offset_of!(RawEvent, abi);
        bytes[event..event + 2].copy_from_slice(&version.to_ne_bytes());
        prop_assert_eq!(DECODER.event(&bytes), Err(DecodeError::Abi(version)));
        let socket = std::mem::offset_of!(RawSocket, abi);
        bytes[socket..socket + 2].copy_from_slice(&version.to_ne_bytes());
        prop_assert_eq!(DECODER.socket(&bytes, &Ticks::default()), Err(DecodeError::Abi(version)));
    }

    #[test]
    fn any_record_gives_a_value_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 120), known in any::<bool>()) {
        if known {
            bytes[108..110].copy_from_slice(&ABI_VERSION.to_ne_bytes());
            bytes[112..114].copy_from_slice(&ABI_VERSION.to_ne_bytes());
        }
        let mut ticks = Ticks::default();
        ticks.learn(u64::from_ne_bytes(bytes[8..16].try_into().unwrap()), u64::from_ne_bytes(bytes[..8].try_into().unwrap()));
        let _ = DECODER.event(&bytes);
        let _ = DECODER.socket(&bytes, &ticks);
    }
}
