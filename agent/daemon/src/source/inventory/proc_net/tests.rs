use super::*;
use line::LineError;
use proptest::prelude::*;
use std::{net::SocketAddr, os::unix::fs::symlink};
use storewatch_core::connection::TcpState;

const V4: &str = "   1: 0201FB0A:8AE8 0202FB0A:2134 02 00000001:00000000 01:00000064 00000002     0        0 4711 2 ffff8880 400 0 0 1 7";
const V6: &str = "  12: 000051FD000000000000000002000000:9C40 000051FD000000000000000002000000:2134 01 00000040:00000010 00:00000000 00000000  1000        0 815 1 ffff8880";
const MAPPED: &str = "   0: 0000000000000000FFFF00000201FB0A:9C40 0000000000000000FFFF00000202FB0A:2134 08 00000000:00000001 00:00000000 00000000     0        0 12 1 f";
const LISTENER: &str =
    "   0: 00000000:2134 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 f";

fn parse(text: &str) -> Result<Line, LineError> {
    Line::parse(text.as_bytes())
}

#[test]
fn both_tables_are_read() {
    let line = parse(V4).unwrap();
    assert_eq!(line.local, "10.251.1.2:35560".parse::<SocketAddr>().unwrap());
    assert_eq!(line.remote, "10.251.2.2:8500".parse::<SocketAddr>().unwrap());
    assert_eq!((line.state, line.retransmitting, line.retransmits, line.inode), (TcpState::SynSent, true, 2, 4711));
    assert_eq!(line.unanswered(), 0, "a SYN is no data");
    let line = parse(V6).unwrap();
    assert_eq!(line.remote, "[fd51::2]:8500".parse::<SocketAddr>().unwrap());
    assert_eq!((line.state, line.unanswered(), line.inode), (TcpState::Established, 64, 815));
    assert_eq!(parse(MAPPED).unwrap().remote, "10.251.2.2:8500".parse::<SocketAddr>().unwrap());
    assert!(parse(LISTENER).unwrap().is_server());
}

#[test]
fn a_wrong_column_is_named() {
    let cases = [
        ("", "sl"),
        ("1:", "local_address"),
        ("1: 0201FB0A8AE8 x", "local_address"),
        ("1: 0201FB0:8AE8 x", "local_address"),
        ("1: +201FB0A:8AE8 x", "local_address"),
        ("1: 0201FB0A:8AE8 0202FB0A:213", "rem_address"),
        ("1: 0201FB0A:8AE8 0202FB0A:2134 0D", "st"),
        ("1: 0201FB0A:8AE8 0202FB0A:2134 1FF", "st"),
        ("1: 0201FB0A:8AE8 0202FB0A:2134 01 0", "tx_queue:rx_queue"),
        ("1: 0201FB0A:8AE8 0202FB0A:2134 01 0:0 x:0", "tr:tm->when"),
        ("1: 0201FB0A:8AE8 0202FB0A:2134 01 0:0 0:0 -1", "retrnsmt"),
        ("1: 0201FB0A:8AE8 0202FB0A:2134 01 0:0 0:0 0 0 0", "inode"),
        ("1: 0201FB0A:8AE8 0202FB0A:2134 01 0:0 0:0 0 0 0 -4", "inode"),
    ];
    for (text, column) in cases {
        assert_eq!(parse(text), Err(LineError(column)), "{text:?}");
    }
    assert_eq!(Line::parse(b"1: \xff\xfe"), Err(LineError("sl")));
}

#[test]
fn cut_anywhere_a_line_is_an_error_until_its_inode_begins() {
    let inode = V4.find("4711").unwrap();
    for len in 0..=inode {
        assert!(parse(&V4[..len]).is_err(), "{len}");
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_line_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Line::parse(&bytes);
    }

    #[test]
    fn a_damaged_line_gives_a_line_or_an_error(at in 0..V6.len(), byte in any::<u8>()) {
        let mut bytes = V6.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = Line::parse(&bytes);
    }
}

/// A line as a kernel writes it, or one that none would.
fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let real = || proptest::sample::select(vec![V4, V6, MAPPED, LISTENER]).prop_map(|line| line.as_bytes().to_vec());
    let damaged =
        (real(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(|(line, at, byte, cut)| {
            let (mut line, at) = (line.clone(), at.index(line.len()));
            line[at] = byte;
            line.truncate(if cut { at } else { line.len() });
            line
        });
    prop_oneof![
        4 => real(),
        4 => damaged,
        2 => proptest::collection::vec(any::<u8>(), 0..300),
        1 => (0_usize..20_000).prop_map(|length| vec![b'7'; length]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.min(64).max(asked()), ..ProptestConfig::default() })]

    /// Whatever stands in a table: what can be read is read, what cannot is named, and nothing is invented.
    #[test]
    fn any_table_gives_a_sample_that_tells_its_shortfall(lines in proptest::collection::vec(any_line(), 0..40), ended in any::<bool>()) {
        let root = proc_with(&[(10, &[], &[4711])]);
        let mut table = b"  sl  heading\n".to_vec();
        for line in &lines {
            table.extend_from_slice(line);
            table.push(b'\n');
        }
        if !ended {
            table.pop();
        }
        fs::write(root.path().join("10/net/tcp"), &table).unwrap();
        let Reading { sample, shortfall, .. } = read(&root, &[8500]);
        // An empty line is one that cannot be read; what follows the last line's end is none.
        let text = table.strip_suffix(b"\n").unwrap_or(&table);
        let rows = || text.split(|byte| *byte == b'\n').skip(1);
        let good = rows().filter(|row| row.len() < 4096 && Line::parse(row).is_ok()).count();
        prop_assert!(sample.complete && sample.sockets.len() <= good);
        let bad = rows().any(|row| Line::parse(row).is_err());
        prop_assert_eq!(bad, shortfall.ends_with("lines could not be read"), "{}", shortfall);
        prop_assert!(sample.sockets.iter().all(|socket| socket.remote.port() == 8500));
    }
}

/// Cases that the environment asks for.
fn asked() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// A `/proc` with the given processes: pid, table, inodes of its sockets.
fn proc_with(processes: &[(u32, &[&str], &[u64])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (pid, table, sockets) in processes {
        let process = root.path().join(pid.to_string());
        fs::create_dir_all(process.join("net")).unwrap();
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::write(process.join("net/tcp"), format!("  sl  heading\n{}\n", table.join("\n"))).unwrap();
        for (number, inode) in sockets.iter().enumerate() {
            symlink(format!("socket:[{inode}]"), process.join("fd").join(number.to_string())).unwrap();
        }
    }
    root
}

fn read(root: &tempfile::TempDir, ports: &[u16]) -> Reading {
    read_at(root.path(), None, ports, Ticks::default())
}

#[test]
fn sockets_on_watched_ports_are_found_with_their_holder() {
    let root = proc_with(&[(10, &[V4, MAPPED, LISTENER], &[999]), (11, &[V6], &[815, 4711])]);
    let Reading { sample, shortfall, .. } = read(&root, &[8500]);
    assert_eq!(shortfall, "");
    assert!(sample.complete);
    let found: Vec<_> = sample.sockets.iter().map(|socket| (socket.owner.pid, socket.state)).collect();
    // The holder of the mapped one is unknown; it is not hidden for that.
    assert_eq!(found, [(Some(11), TcpState::SynSent), (None, TcpState::CloseWait), (Some(11), TcpState::Established)]);
    assert!(sample.sockets.iter().all(|socket| socket.bytes_received.is_none()));
    assert!(read(&root, &[8501]).sample.sockets.is_empty());
}

#[test]
fn own_sockets_and_ownerless_ones_are_left_out() {
    let ownerless = V6.replace(" 815 ", " 0 ");
    let own = std::process::id();
    let root = proc_with(&[(own, &[V4, &ownerless], &[4711])]);
    assert!(read(&root, &[8500]).sample.sockets.is_empty());
}

#[test]
fn hostile_lines_are_counted_and_the_rest_is_read() {
    let endless = "x".repeat(3 * 4096);
    let root = proc_with(&[(10, &["garbage", &endless, V4], &[4711])]);
    let Reading { sample, shortfall, .. } = read(&root, &[8500]);
    assert_eq!(sample.sockets.len(), 1);
    assert!(shortfall.ends_with("lines could not be read"), "{shortfall}");
}

#[test]
fn a_budget_that_ends_makes_the_sample_incomplete() {
    let root = proc_with(&[(10, &[V4, V4, V4], &[])]);
    let file = File::open(root.path().join("10/net/tcp")).unwrap();
    let mut budget = V4.len() as u64 + 20;
    let mut seen = 0;
    assert!(!lines(file, &mut budget, &mut |_| {
        seen += 1;
        true
    }));
    assert_eq!((budget, seen), (0, 2));
}

#[test]
fn an_empty_proc_is_an_empty_inventory() {
    let root = tempfile::tempdir().unwrap();
    let reading = read(&root, &[8500]);
    assert!(reading.sample.sockets.is_empty() && reading.sample.complete);
}
