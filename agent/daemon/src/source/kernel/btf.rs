//! A reader of BTF, the kernel's description of its own types: where fields lie, how many arguments a tracepoint has.
//!
//! rustc and bpf-linker emit no relocations and aya does not expose members, so the offsets that the programs use are
//! looked up here and handed over as read-only globals. The bytes come from the kernel, yet nothing is trusted: any input
//! gives an answer or an error that names the place, in bounded time.

use std::{collections::HashMap, ffi::CStr};

#[cfg(test)]
mod tests;

const MAGIC: u16 = 0xeb9f;
/// Length of the header fields that are read.
const HEADER: usize = 24;
/// Nested anonymous structs, and links in a chain of typedefs and qualifiers: real ones stay below ten.
const MAX_DEPTH: u32 = 32;
/// Members looked at for one field: the largest struct of a real kernel has some hundreds.
const MAX_MEMBERS: u32 = 200_000;

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// Why BTF gives no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// Not BTF, or of the other byte order.
    #[error("no BTF: magic number is {0:#06x}")]
    Magic(u16),
    /// A version that this reader does not know.
    #[error("BTF version {0} is not known")]
    Version(u8),
    /// The bytes end too early.
    #[error("BTF is cut short at byte {0}")]
    Truncated(usize),
    /// A kind of type whose length is unknown, so that nothing after it can be found.
    #[error("type {id} of the BTF has the unknown kind {kind}")]
    Kind {
        /// Which type.
        id: usize,
        /// Its kind.
        kind: u32,
    },
    /// No such struct.
    #[error("this kernel has no struct {0}")]
    NoStruct(String),
    /// The struct has no such field.
    #[error("this kernel has no field {0}")]
    NoField(String),
    /// The field is not a whole number of bytes away.
    #[error("field {0} is a bit field")]
    BitField(String),
    /// Types refer to each other without end.
    #[error("the types of {0} refer to each other without end")]
    Loop(String),
}

/// Parsed BTF: where each type begins, and the structs and tracepoints by name.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    starts: Vec<u32>,
    structs: HashMap<&'a [u8], u32>,
    typedefs: HashMap<&'a [u8], u32>,
    functions: HashMap<&'a [u8], u32>,
    strings: &'a [u8],
}

struct Type {
    name: u32,
    kind: u32,
    vlen: usize,
    kflag: bool,
    /// Size or another type, by kind.
    link: u32,
    /// Where the kind's own data begins.
    body: usize,
}

impl<'a> Btf<'a> {
    /// Finds all types.
    ///
    /// # Errors
    /// When the bytes are no BTF, are cut short, or hold an unknown kind.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let magic = u16::from_le_bytes(array(bytes, 0)?);
        if magic != MAGIC {
            return Err(BtfError::Magic(magic));
        }
        let [version] = array(bytes, 2)?;
        if version != 1 {
            return Err(BtfError::Version(version));
        }
        if bytes.len() < HEADER {
            return Err(BtfError::Truncated(bytes.len()));
        }
        let header = word(bytes, 4)? as usize;
        let types = section(bytes, header, word(bytes, 8)?, word(bytes, 12)?)?;
        let strings = section(bytes, header, word(bytes, 16)?, word(bytes, 20)?)?;
        let mut btf = Self {
            types,
            starts: vec![0],
            structs: HashMap::new(),
            typedefs: HashMap::new(),
            functions: HashMap::new(),
            strings,
        };
        btf.index()?;
        Ok(btf)
    }

    fn index(&mut self) -> Result<(), BtfError> {
        let mut at = 0;
        while at < self.types.len() {
            let id = self.starts.len();
            let ty = self.read(at)?;
            let end = ty.body + body_len(&ty).ok_or(BtfError::Kind { id, kind: ty.kind })?;
            if end > self.types.len() {
                return Err(BtfError::Truncated(self.types.len()));
            }
            self.starts.push(u32::try_from(at).map_err(|_| BtfError::Truncated(at))?);
            let id = u32::try_from(id).map_err(|_| BtfError::Truncated(at))?;
            // Three of four types are none of these, so names are looked at last.
            let names = match ty.kind {
                kind::STRUCT => &mut self.structs,
                kind::TYPEDEF if begins(self.strings, ty.name, &[b"btf_trace_"]) => &mut self.typedefs,
                kind::FUNC if begins(self.strings, ty.name, &[b"bpf_", b"tcp_v"]) => &mut self.functions,
                _ => {
                    at = end;
                    continue;
                }
            };
            if let Some(name) = string(self.strings, ty.name).filter(|name| !name.is_empty()) {
                // The first of a name wins: later ones are modules' or other units' variants.
                names.entry(name).or_insert(id);
            }
            at = end;
        }
        Ok(())
    }

    /// How many types there are.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offset in bytes of a field, for example `("tcp_sock", "inet_conn.icsk_ack.lrcvtime")`. Fields of anonymous structs
    /// and unions count as fields of what holds them.
    ///
    /// # Errors
    /// When the struct or a field is not there, is a bit field, or the types are broken.
    pub fn offset(&self, name: &str, path: &str) -> Result<u32, BtfError> {
        let full = || format!("{name}.{path}");
        let mut ty = *self.structs.get(name.as_bytes()).ok_or_else(|| BtfError::NoStruct(name.to_owned()))?;
        let mut bits = 0_u32;
        let mut budget = MAX_MEMBERS;
        for part in path.split('.') {
            let (offset, member) =
                self.member(ty, part.as_bytes(), (0, &mut budget), &full)?.ok_or_else(|| BtfError::NoField(full()))?;
            bits = bits.checked_add(offset).ok_or_else(|| BtfError::NoField(full()))?;
            ty = member;
        }
        if bits.is_multiple_of(8) { Ok(bits / 8) } else { Err(BtfError::BitField(full())) }
    }

    /// Arguments of a tracepoint as a raw tracepoint gives them; `None` when the kernel has no such tracepoint.
    pub fn tracepoint_arguments(&self, event: &str) -> Option<u32> {
        let typedef = *self.typedefs.get(format!("btf_trace_{event}").as_bytes())?;
        let pointer = self.get(self.get(typedef)?.link)?;
        let proto = self.get(pointer.link)?;
        // The first argument is the tracepoint's private data.
        (pointer.kind == kind::PTR && proto.kind == kind::FUNC_PROTO)
            .then(|| u32::try_from(proto.vlen).ok()?.checked_sub(1))
            .flatten()
    }

    /// The kernel has this function (only those that begin with `bpf_` or `tcp_v` are known).
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name.as_bytes())
    }

    /// Bit offset and type of a member of a struct or union.
    fn member(
        &self,
        id: u32,
        name: &[u8],
        (depth, budget): (u32, &mut u32),
        full: &impl Fn() -> String,
    ) -> Result<Option<(u32, u32)>, BtfError> {
        if depth > MAX_DEPTH {
            return Err(BtfError::Loop(full()));
        }
        let Some(ty) = self.resolve(id).map_err(|()| BtfError::Loop(full()))? else { return Ok(None) };
        if ty.kind != kind::STRUCT && ty.kind != kind::UNION {
            return Ok(None);
        }
        for index in 0..ty.vlen {
            *budget = budget.checked_sub(1).ok_or_else(|| BtfError::Loop(full()))?;
            let at = ty.body + index * 12;
            let (member_name, member, raw) =
                (word(self.types, at)?, word(self.types, at + 4)?, word(self.types, at + 8)?);
            let (offset, width) = if ty.kflag { (raw & 0x00ff_ffff, raw >> 24) } else { (raw, 0) };
            match self.string(member_name) {
                Some(found) if found == name && !name.is_empty() => {
                    return if width == 0 { Ok(Some((offset, member))) } else { Err(BtfError::BitField(full())) };
                }
                Some([]) => {
                    if let Some((inner, ty)) = self.member(member, name, (depth + 1, budget), full)? {
                        return Ok(offset.checked_add(inner).map(|bits| (bits, ty)));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Follows typedefs and qualifiers; an error is an endless chain.
    fn resolve(&self, mut id: u32) -> Result<Option<Type>, ()> {
        for _ in 0..MAX_DEPTH {
            let Some(ty) = self.get(id) else { return Ok(None) };
            match ty.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => id = ty.link,
                _ => return Ok(Some(ty)),
            }
        }
        Err(())
    }

    fn get(&self, id: u32) -> Option<Type> {
        // Type 0 is `void` and has no bytes.
        let start = *self.starts.get(id as usize).filter(|_| id != 0)?;
        self.read(start as usize).ok()
    }

    fn read(&self, at: usize) -> Result<Type, BtfError> {
        let (name, info, link) = (word(self.types, at)?, word(self.types, at + 4)?, word(self.types, at + 8)?);
        Ok(Type {
            name,
            kind: info >> 24 & 0x1f,
            vlen: (info & 0xffff) as usize,
            kflag: info >> 31 == 1,
            link,
            body: at + 12,
        })
    }

    fn string(&self, at: u32) -> Option<&'a [u8]> {
        string(self.strings, at)
    }
}

fn string(strings: &[u8], at: u32) -> Option<&[u8]> {
    let rest = strings.get(at as usize..)?;
    // The last one may lack its end.
    Some(CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes))
}

fn begins(strings: &[u8], at: u32, prefixes: &[&[u8]]) -> bool {
    strings.get(at as usize..).is_some_and(|rest| prefixes.iter().any(|prefix| rest.starts_with(prefix)))
}

fn body_len(ty: &Type) -> Option<usize> {
    Some(match ty.kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => ty.vlen * 12,
        kind::ENUM | kind::FUNC_PROTO => ty.vlen * 8,
        kind::PTR
        | kind::FWD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNC
        | kind::FLOAT
        | kind::TYPE_TAG => 0,
        _ => return None,
    })
}

fn section(bytes: &[u8], header: usize, offset: u32, len: u32) -> Result<&[u8], BtfError> {
    let start = header.saturating_add(offset as usize);
    bytes.get(start..start.saturating_add(len as usize)).ok_or(BtfError::Truncated(bytes.len()))
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], BtfError> {
    bytes.get(at..at.saturating_add(N)).and_then(|bytes| bytes.try_into().ok()).ok_or(BtfError::Truncated(bytes.len()))
}
