use super::*;
use proptest::prelude::*;
use std::fs;

/// Writes BTF the way a compiler would.
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    next: u32,
}

impl Writer {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0], next: 1 }
    }

    fn name(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    fn ty(&mut self, name: &str, kind: u32, flag: bool, vlen: u32, link: u32, body: &[u32]) -> u32 {
        let name = self.name(name);
        for word in [name, u32::from(flag) << 31 | kind << 24 | vlen, link].iter().chain(body) {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
        self.next += 1;
        self.next - 1
    }

    fn int(&mut self) -> u32 {
        self.ty("int", kind::INT, false, 0, 4, &[32])
    }

    fn composite(&mut self, name: &str, kind: u32, members: &[(&str, u32, u32)]) -> u32 {
        let body: Vec<u32> = members.iter().flat_map(|(name, ty, bits)| [self.name(name), *ty, *bits]).collect();
        self.ty(name, kind, false, members.len() as u32, 0, &body)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [24, 0, types, types, strings] {
            bytes.extend_from_slice(&u32::to_le_bytes(word));
        }
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&self.strings);
        bytes
    }
}

fn sample() -> Vec<u8> {
    let mut w = Writer::new();
    let int = w.int();
    let constant = w.ty("", kind::CONST, false, 0, int, &[]);
    let inner = w.composite("inner", kind::STRUCT, &[("a", int, 0), ("b", constant, 32)]);
    let alias = w.ty("alias_t", kind::TYPEDEF, false, 0, inner, &[]);
    let union = w.composite("", kind::UNION, &[("x", int, 0), ("y", alias, 0)]);
    w.composite("outer", kind::STRUCT, &[("first", int, 0), ("", union, 64), ("last", alias, 128)]);
    w.ty("flags", kind::STRUCT, true, 2, 4, &[0, int, 3 << 24, 0, int, 8]);
    let proto = w.ty("", kind::FUNC_PROTO, false, 4, 0, &[0, int, 0, int, 0, int, 0, int]);
    let pointer = w.ty("", kind::PTR, false, 0, proto, &[]);
    w.ty("btf_trace_shot", kind::TYPEDEF, false, 0, pointer, &[]);
    w.ty("btf_trace_odd", kind::TYPEDEF, false, 0, int, &[]);
    w.ty("bpf_iter_task_file", kind::FUNC, false, 1, proto, &[]);
    w.bytes()
}

#[test]
fn fields_are_found_through_typedefs_qualifiers_and_anonymous_types() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.len(), 12);
    assert_eq!(btf.offset("outer", "first"), Ok(0));
    assert_eq!(btf.offset("outer", "x"), Ok(8));
    assert_eq!(btf.offset("outer", "y.b"), Ok(12));
    assert_eq!(btf.offset("outer", "last.b"), Ok(20));
}

#[test]
fn what_is_not_there_is_named() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset("none", "a"), Err(BtfError::NoStruct("none".to_owned())));
    assert_eq!(btf.offset("outer", "last.c"), Err(BtfError::NoField("outer.last.c".to_owned())));
    assert_eq!(btf.offset("outer", "first.a"), Err(BtfError::NoField("outer.first.a".to_owned())));
    assert_eq!(btf.offset("outer", ""), Err(BtfError::NoField("outer.".to_owned())));
}

#[test]
fn tracepoints_have_their_arguments_and_functions_their_names() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.tracepoint_arguments("shot"), Some(3));
    assert_eq!(btf.tracepoint_arguments("odd"), None);
    assert_eq!(btf.tracepoint_arguments("none"), None);
    assert!(btf.has_function("bpf_iter_task_file"));
    assert!(!btf.has_function("bpf_iter_tcp"));
}

#[test]
fn a_bit_field_has_no_offset_in_bytes() {
    let mut w = Writer::new();
    let int = w.int();
    let (a, b) = (w.name("narrow"), w.name("odd"));
    w.ty("flags", kind::STRUCT, true, 2, 4, &[a, int, 3 << 24, b, int, 12]);
    let bytes = w.bytes();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset("flags", "narrow"), Err(BtfError::BitField("flags.narrow".to_owned())));
    assert_eq!(btf.offset("flags", "odd"), Err(BtfError::BitField("flags.odd".to_owned())));
}

#[test]
fn endless_chains_and_nests_end() {
    let mut w = Writer::new();
    // A typedef of itself, a struct that holds itself without a name, and a tree that doubles at each level.
    w.ty("self_t", kind::TYPEDEF, false, 0, 1, &[]);
    w.composite("chain", kind::STRUCT, &[("", 1, 0)]);
    w.composite("nest", kind::STRUCT, &[("", 3, 0)]);
    let names = [("", 5, 0); 8];
    for level in 4..29 {
        let members = names.map(|(name, _, bits)| (name, level + 1, bits));
        assert_eq!(w.composite(if level == 4 { "tree" } else { "" }, kind::STRUCT, &members), level);
    }
    let bytes = w.bytes();
    let btf = Btf::parse(&bytes).unwrap();
    for name in ["chain", "nest", "tree"] {
        assert_eq!(btf.offset(name, "a"), Err(BtfError::Loop(format!("{name}.a"))));
    }
}

#[test]
fn what_is_no_btf_is_refused_by_name() {
    assert_eq!(Btf::parse(&[]).unwrap_err(), BtfError::Truncated(0));
    assert_eq!(Btf::parse(&[0xeb, 0x9f, 1, 0]).unwrap_err(), BtfError::Magic(0x9feb));
    assert_eq!(Btf::parse(&[0x9f, 0xeb, 2, 0]).unwrap_err(), BtfError::Version(2));
    let mut w = Writer::new();
    w.int();
    w.ty("x", 25, false, 0, 0, &[]);
    assert_eq!(Btf::parse(&w.bytes()).unwrap_err(), BtfError::Kind { id: 2, kind: 25 });
}

#[test]
fn cut_anywhere_it_is_an_error_and_never_a_panic() {
    let bytes = sample();
    for len in 0..bytes.len() {
        assert!(matches!(Btf::parse(&bytes[..len]), Err(BtfError::Truncated(_))), "{len} bytes");
    }
}

fn ask_everything(bytes: &[u8]) {
    if let Ok(btf) = Btf::parse(bytes) {
        for path in ["a", "x", "y.b", "last.b"] {
            let _ = btf.offset("outer", path);
            let _ = btf.offset("inner", path);
        }
        let _ = btf.tracepoint_arguments("shot");
    }
}

proptest! {
    #[test]
    fn any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        ask_everything(&bytes);
    }

    #[test]
    fn damaged_btf_gives_an_answer(at in 0_usize..sample().len(), value in any::<u8>(), more in 0_usize..sample().len()) {
        let mut bytes = sample();
        bytes[at] = value;
        bytes[more] = bytes[more].wrapping_add(value);
        ask_everything(&bytes);
    }
}

/// A kind of type, and its members: which name, which type, which offset in bits.
type Drawn = (u32, Vec<(u8, u32, u32)>);

/// Types that refer to any others, themselves and what does not exist among them.
fn any_types() -> impl Strategy<Value = Vec<Drawn>> {
    let kinds = vec![
        kind::STRUCT,
        kind::UNION,
        kind::TYPEDEF,
        kind::CONST,
        kind::PTR,
        kind::TYPE_TAG,
        kind::FUNC_PROTO,
        kind::INT,
    ];
    let member = (0_u8..4, 0_u32..40, any::<u32>());
    proptest::collection::vec((proptest::sample::select(kinds), proptest::collection::vec(member, 0..12)), 1..40)
}

proptest! {
    /// A question about types that refer to each other in whatever way is answered, in bounded time: each takes some
    /// hundred thousand steps at most.
    #[test]
    fn any_web_of_types_gives_an_answer(types in any_types()) {
        let mut w = Writer::new();
        for (number, (kind, members)) in types.iter().enumerate() {
            let link = members.first().map_or(0, |(_, ty, _)| *ty);
            let name = if number % 3 == 0 { "outer" } else { "btf_trace_shot" };
            match *kind {
                kind::STRUCT | kind::UNION => {
                    let named = |(name, ty, bits): &(u8, u32, u32)| (["", "a", "x", "y"][usize::from(*name)], *ty, *bits);
                    let members: Vec<_> = members.iter().map(named).collect();
                    w.composite(if number % 2 == 0 { "outer" } else { "" }, *kind, &members);
                }
                kind::INT => {
                    w.int();
                }
                kind::FUNC_PROTO => {
                    let body: Vec<u32> = members.iter().flat_map(|(_, ty, _)| [0, *ty]).collect();
                    w.ty("", *kind, false, members.len() as u32, 0, &body);
                }
                _ => {
                    w.ty(name, *kind, false, 0, link, &[]);
                }
            }
        }
        let bytes = w.bytes();
        prop_assert!(Btf::parse(&bytes).is_ok());
        ask_everything(&bytes);
    }
}

#[test]
fn the_running_kernel_has_every_field() {
    let Ok(bytes) = fs::read(crate::source::kernel::capability::BTF_PATH) else {
        return; // A machine without BTF has nothing to check; the kernel tests require it.
    };
    let btf = Btf::parse(&bytes).unwrap();
    assert!(btf.len() > 10_000);
    let resolved = crate::source::kernel::offsets::resolve(&btf).unwrap();
    assert_eq!(resolved.missing, []);
    assert_eq!(btf.tracepoint_arguments("inet_sock_set_state"), Some(3));
    assert_eq!(btf.tracepoint_arguments("tcp_destroy_sock"), Some(1));
}
