//! The processes that dial or hold the connections of judged pods: whether they still live, and what their command
//! lines say.
//!
//! Only bounded facts travel, never a command line: it may hold secrets, and a remedy needs to know of some flags only.
//! What is not on a command line may still be set: by `JAVA_TOOL_OPTIONS`, `JDK_JAVA_OPTIONS`, an argument file or a
//! security property. Whoever uses these facts claims no more than "it is (not) on the command line".

use crate::time::MonoTime;

/// What was found of one process that the judge asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessReport {
    /// Which, in the initial pid namespace.
    pub pid: u32,
    /// When it was looked at.
    pub at: MonoTime,
    /// What was found.
    pub state: ProcessState,
}

/// Whether a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// A process of this number lives. Whether it is the one that was meant, its begin tells.
    Alive {
        /// When it began, rounded down to the kernel's tick.
        started: MonoTime,
        /// What its command line says; `None` while that could not be read.
        command: Option<CommandLine>,
    },
    /// None does.
    Ended,
}

/// What a command line says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// It runs a Java virtual machine.
    pub java: bool,
    /// It was read to its end: a flag that was not found is not on it.
    pub whole: bool,
    /// `-Dsun.net.inetaddr.ttl`: how long the JVM keeps DNS answers.
    pub dns_ttl: Option<FlagValue>,
    /// `-Dnetworkaddress.cache.ttl`: a security property, which does nothing as a system property.
    pub cache_ttl: Option<FlagValue>,
    /// `-Djava.security.manager`: under one, Java 11 caches DNS answers for ever.
    pub security_manager: bool,
    /// `-Djava.security.properties` or an argument file: more is set elsewhere.
    pub more_elsewhere: bool,
}

/// A flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagValue {
    /// A whole number.
    Number(i64),
    /// Something else, which does not leave the place where it was read.
    Other,
}

impl std::fmt::Display for FlagValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Other => f.write_str("(no number)"),
        }
    }
}
