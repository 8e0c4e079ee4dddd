//! DNS without a memory: every look-up asks again.
//!
//! `/etc/resolv.conf` and `/etc/hosts` are honoured, and read again when they change. What a JVM gets wrong, keeping an
//! address for ever, must not happen here, so nothing is cached; who needs the last address keeps it.
//! The search list is walked here and not by hickory, because its answer is decided by the last candidate, and for each
//! record type apart: a SERVFAIL in the middle, or a name that has only one address family, would be read as "no such name".

use hickory_resolver::{
    Hosts, TokioResolver,
    config::{ResolveHosts, ResolverConfig, ResolverOpts},
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::{Query, ResponseCode},
        rr::{Name, RecordType},
    },
    system_conf,
};
use std::{
    fs,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};
use storewatch_core::ping::NameFailure;
use tokio::time::{Instant, timeout_at};

/// Most addresses taken from one answer.
const MOST_ADDRESSES: usize = 32;
/// The longest wait for one answer of one server: a lost packet must leave time for another try.
const LONGEST_TRY: Duration = Duration::from_millis(500);

/// What a look-up gave, for each address family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The A records.
    pub v4: Result<Vec<IpAddr>, NameFailure>,
    /// The AAAA records.
    pub v6: Result<Vec<IpAddr>, NameFailure>,
    /// What went wrong, in words.
    pub detail: Option<String>,
    /// How long it took.
    pub took: Duration,
}

impl Lookup {
    /// All addresses, IPv4 first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        [&self.v4, &self.v6].into_iter().flatten().flatten().copied()
    }

    /// All addresses, IPv4 first.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn into_addresses(self) -> Result<Vec<IpAddr>, String> {
        let addresses: Vec<IpAddr> = self.addresses().collect();
        if addresses.is_empty() {
            return Err(self.detail.unwrap_or_else(|| "the name has no address".to_owned()));
        }
        Ok(addresses)
    }

    /// Some answer came, be it that the name does not exist.
    pub fn answered(&self) -> bool {
        let answered = |family: &Result<_, NameFailure>| !matches!(family, Err(NameFailure::NoAnswer));
        answered(&self.v4) && answered(&self.v6)
    }

    fn failed(failure: NameFailure, detail: String) -> Self {
        Self { v4: Err(failure), v6: Err(failure), detail: Some(detail), took: Duration::ZERO }
    }
}

/// Looks names up as the system is configured.
#[derive(Debug)]
pub struct Resolver {
    resolv_conf: PathBuf,
    hosts: PathBuf,
    /// Replaced as a whole when one of the files changes.
    present: Mutex<Option<(Stamps, Arc<System>)>>,
}

/// Times and sizes of the two files.
type Stamps = [Option<(SystemTime, u64)>; 2];

/// The system's configuration at one time.
struct System {
    hosts: Hosts,
    /// The resolver, its search list and `ndots`; or why there is none.
    dns: Result<(TokioResolver, Vec<Name>, usize), String>,
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("dns", &self.dns.as_ref().map(|_| ())).finish_non_exhaustive()
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::with_files("/etc/resolv.conf", "/etc/hosts")
    }
}

impl Resolver {
    /// A resolver that reads these files instead of the system's.
    pub fn with_files(resolv_conf: impl Into<PathBuf>, hosts: impl Into<PathBuf>) -> Self {
        Self { resolv_conf: resolv_conf.into(), hosts: hosts.into(), present: Mutex::default() }
    }

    /// Asks for both address families of `host` within `budget`. A literal address is its own answer.
    pub async fn look_up(&self, host: &str, budget: Duration) -> Lookup {
        let begin = Instant::now();
        let mut lookup = match crate::address::literal(host) {
            Some(ip) => {
                let (v4, v6) = if ip.is_ipv4() { (vec![ip], Vec::new()) } else { (Vec::new(), vec![ip]) };
                Lookup { v4: Ok(v4), v6: Ok(v6), detail: None, took: Duration::ZERO }
            }
            None => match Name::from_str_relaxed(host) {
                Ok(name) => self.system().look_up(name, begin + budget).await,
                Err(error) => Lookup::failed(NameFailure::NoSuchName, format!("not a DNS name: {error}")),
            },
        };
        lookup.took = begin.elapsed();
        lookup
    }

    /// Two `stat` calls and, after a change, two small files: not worth a thread of their own.
    fn system(&self) -> Arc<System> {
        let stamp = |path: &PathBuf| fs::metadata(path).ok().and_then(|file| Some((file.modified().ok()?, file.len())));
        let stamps = [stamp(&self.resolv_conf), stamp(&self.hosts)];
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, system)) = &*present
            && *known == stamps
        {
            return Arc::clone(system);
        }
        let mut hosts = Hosts::default();
        // A file that is missing or unreadable names no hosts.
        let _ = fs::File::open(&self.hosts).and_then(|file| hosts.read_hosts_conf(file));
        let dns = fs::read(&self.resolv_conf)
            .map_err(NetError::from)
            .and_then(system_conf::parse_resolv_conf)
            .map_err(|error| format!("{}: {error}", self.resolv_conf.display()))
            .and_then(|(config, options)| build(config, options));
        let system = Arc::new(System { hosts, dns });
        *present = Some((stamps, Arc::clone(&system)));
        system
    }
}

fn build(config: ResolverConfig, mut options: ResolverOpts) -> Result<(TokioResolver, Vec<Name>, usize), String> {
    let search = config.search().to_vec();
    let ndots = options.ndots;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.timeout = options.timeout.min(LONGEST_TRY);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build().map(|resolver| (resolver, search, ndots)).map_err(|error| error.to_string())
}

impl System {
    async fn look_up(&self, name: Name, deadline: Instant) -> Lookup {
        if let Some(lookup) = self.in_hosts(&name) {
            return lookup;
        }
        let (resolver, search, ndots) = match &self.dns {
            Ok((resolver, search, ndots)) => (resolver, search, *ndots),
            Err(problem) => return Lookup::failed(NameFailure::NoAnswer, problem.clone()),
        };
        let mut unanswered: Option<Lookup> = None;
        let mut absent = Lookup::failed(NameFailure::NoSuchName, "no such name".to_owned());
        for candidate in candidates(&name, search, ndots) {
            let both = async {
                tokio::join!(
                    one(resolver, candidate.clone(), RecordType::A),
                    one(resolver, candidate.clone(), RecordType::AAAA)
                )
            };
            let Ok((v4, v6)) = timeout_at(deadline, both).await else {
                return Lookup::failed(NameFailure::NoAnswer, format!("no answer in time for {candidate}"));
            };
            let lookup = combine(v4, v6);
            if lookup.addresses().next().is_some() {
                return lookup;
            }
            if !lookup.answered() {
                unanswered.get_or_insert(lookup);
            } else if lookup.v4.is_ok() {
                // It exists, without addresses; a later candidate may have some.
                absent = lookup;
            }
        }
        unanswered.unwrap_or(absent)
    }

    fn in_hosts(&self, name: &Name) -> Option<Lookup> {
        let family = |kind| {
            self.hosts.lookup_static_host(&Query::query(name.clone(), kind)).map(|found| {
                let addresses = found.answers().iter().filter_map(|record| record.data.ip_addr());
                addresses.take(MOST_ADDRESSES).collect::<Vec<_>>()
            })
        };
        let (v4, v6) = (family(RecordType::A), family(RecordType::AAAA));
        (v4.is_some() || v6.is_some()).then(|| Lookup {
            v4: Ok(v4.unwrap_or_default()),
            v6: Ok(v6.unwrap_or_default()),
            detail: None,
            took: Duration::ZERO,
        })
    }
}

/// The names to try, in the order of resolv.conf(5).
fn candidates(name: &Name, search: &[Name], ndots: usize) -> Vec<Name> {
    let mut plain = name.clone();
    plain.set_fqdn(true);
    if name.is_fqdn() {
        return vec![plain];
    }
    let dots = usize::from(name.num_labels()).saturating_sub(1);
    let mut names: Vec<Name> = search
        .iter()
        .filter_map(|suffix| name.clone().append_domain(suffix).ok())
        .map(|mut name| {
            name.set_fqdn(true);
            name
        })
        .collect();
    if dots >= ndots {
        names.insert(0, plain);
    } else {
        names.push(plain);
    }
    names
}

type Family = Result<Vec<IpAddr>, (NameFailure, String)>;

async fn one(resolver: &TokioResolver, name: Name, kind: RecordType) -> Family {
    match resolver.lookup(name, kind).await {
        Ok(answer) => {
            let addresses = answer.answers().iter().filter(|record| record.record_type() == kind);
            Ok(addresses.filter_map(|record| record.data.ip_addr()).take(MOST_ADDRESSES).collect())
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) if none.response_code == ResponseCode::NoError => {
            Ok(Vec::new())
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) if none.response_code == ResponseCode::NXDomain => {
            Err((NameFailure::NoSuchName, "no such name".to_owned()))
        }
        Err(NetError::Dns(DnsError::ResponseCode(ResponseCode::NXDomain))) => {
            Err((NameFailure::NoSuchName, "no such name".to_owned()))
        }
        Err(error) => Err((NameFailure::NoAnswer, crate::fault::bounded(&error.to_string()))),
    }
}

/// A name is one thing for both families: where one has records, the other cannot say that the name does not exist.
fn combine(v4: Family, v6: Family) -> Lookup {
    let exists = v4.is_ok() || v6.is_ok();
    let mut detail = None;
    let mut settle = |family: Family| match family {
        Err((NameFailure::NoSuchName, _)) if exists => Ok(Vec::new()),
        Err((failure, text)) => {
            detail.get_or_insert(text);
            Err(failure)
        }
        Ok(addresses) => Ok(addresses),
    };
    let (v4, v6) = (settle(v4), settle(v6));
    Lookup { v4, v6, detail, took: Duration::ZERO }
}

#[cfg(test)]
mod tests;
