//! A process that does with sockets exactly what it is told, line by line. The tests drive it in a pod's place, since
//! sockets of the test process itself are the agent's own.
//!
//! Commands (`ID` names a socket, errors are errno numbers): `listen ID ADDR`, `accept ID LISTENER`, `dial ID ADDR MS`
//! (waits up to MS for the outcome), `begin ID ADDR` (does not wait), `outcome ID MS`, `poll ID MS` (waits, leaves the error), `again ID ADDR` (a second connect),
//! `dials ADDR COUNT` (that many, each closed at once), `send ID BYTES`, `recv ID BYTES MS`, `keepalive ID SECONDS COUNT`,
//! `user_timeout ID MS`, `linger ID`, `shut ID`, `close ID`, `fork` (a child that holds them all too). Each is answered by one line: `ok ...` or `err ERRNO`.

use libc::{AF_INET, AF_INET6, c_int};
use nix::errno::Errno;
use std::{
    collections::HashMap,
    io::{self, BufRead as _, Write as _},
    mem,
    net::SocketAddr,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

fn main() {
    let mut sockets: HashMap<String, OwnedFd> = HashMap::new();
    let stdin = io::stdin();
    let mut stdout = io::stdout();
    for line in stdin.lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match act(&mut sockets, &words) {
            Ok(text) => format!("ok {text}"),
            Err(error) => format!("err {}", error as i32),
        };
        if writeln!(stdout, "{}", answer.trim_end()).and_then(|()| stdout.flush()).is_err() {
            return;
        }
    }
}

type Sockets = HashMap<String, OwnedFd>;

fn act(sockets: &mut Sockets, words: &[&str]) -> Result<String, Errno> {
    match *words {
        ["listen", id, address] => {
            let address = parse(address)?;
            let socket = socket(&address)?;
            option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
            // SAFETY: a live descriptor and a filled address.
            with_address(&address, |pointer, len| check(unsafe { libc::bind(socket.as_raw_fd(), pointer, len) }))?;
            // SAFETY: a live descriptor.
            check(unsafe { libc::listen(socket.as_raw_fd(), 1024) })?;
            sockets.insert(id.to_owned(), socket);
            Ok(String::new())
        }
        ["accept", id, listener] => {
            let listener = get(sockets, listener)?;
            wait(listener, libc::POLLIN, 5000)?;
            // SAFETY: a live descriptor; no address is asked for.
            let accepted = check(unsafe {
                libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC)
            })?;
            // SAFETY: just made, owned by nobody else.
            sockets.insert(id.to_owned(), unsafe { OwnedFd::from_raw_fd(accepted) });
            Ok(String::new())
        }
        ["begin", id, address] => {
            let address = parse(address)?;
            let socket = socket(&address)?;
            nonblocking(&socket)?;
            let begun = connect(&socket, &address);
            sockets.insert(id.to_owned(), socket);
            match begun {
                Err(Errno::EINPROGRESS) | Ok(()) => Ok(String::new()),
                Err(error) => Err(error),
            }
        }
        ["dial", id, address, millis] => {
            act(sockets, &["begin", id, address])?;
            act(sockets, &["outcome", id, millis])
        }
        ["block", id, address] => {
            let address = parse(address)?;
            let socket = socket(&address)?;
            let outcome = connect(&socket, &address);
            sockets.insert(id.to_owned(), socket);
            outcome.map(|()| String::new())
        }
        ["outcome", id, millis] => {
            let socket = get(sockets, id)?;
            wait(socket, libc::POLLOUT, number(millis)?)?;
            match error_of(socket)? {
                0 => Ok(String::new()),
                errno => Err(Errno::from_raw(errno)),
            }
        }
        ["poll", id, millis] => wait(get(sockets, id)?, libc::POLLOUT, number(millis)?).map(|()| String::new()),
        ["again", id, address] => connect(get(sockets, id)?, &parse(address)?).map(|()| String::new()),
        ["dials", address, count] => {
            let address = parse(address)?;
            let mut errors: HashMap<i32, u32> = HashMap::new();
            for _ in 0..number(count)? {
                let socket = socket(&address)?;
                let errno = connect(&socket, &address).map_or_else(|error| error as i32, |()| 0);
                *errors.entry(errno).or_default() += 1;
            }
            let mut errors: Vec<_> = errors.into_iter().collect();
            errors.sort_unstable();
            Ok(errors.iter().map(|(errno, count)| format!("{errno}:{count}")).collect::<Vec<_>>().join(" "))
        }
        ["begins", id, address, count] => {
            for n in 0..number(count)? {
                act(sockets, &["begin", &format!("{id}{n}"), address])?;
            }
            Ok(String::new())
        }
        ["closes", id, count] => {
            for n in 0..number(count)? {
                sockets.remove(&format!("{id}{n}"));
            }
            Ok(String::new())
        }
        ["accepts", id, listener, count] => {
            for n in 0..number(count)? {
                act(sockets, &["accept", &format!("{id}{n}"), listener])?;
            }
            Ok(String::new())
        }
        ["send", id, bytes] => {
            let data = vec![7_u8; usize::try_from(number(bytes)?).unwrap_or(0)];
            let socket = get(sockets, id)?;
            // SAFETY: a live descriptor and a live buffer of that length.
            let sent = unsafe {
                libc::send(
                    socket.as_raw_fd(),
                    data.as_ptr().cast(),
                    data.len(),
                    libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                )
            };
            if sent < 0 { Err(Errno::last()) } else { Ok(sent.to_string()) }
        }
        ["recv", id, bytes, millis] => {
            let mut data = vec![0_u8; usize::try_from(number(bytes)?).unwrap_or(0)];
            let socket = get(sockets, id)?;
            wait(socket, libc::POLLIN, number(millis)?)?;
            // SAFETY: a live descriptor and a live buffer of that length.
            let got =
                unsafe { libc::recv(socket.as_raw_fd(), data.as_mut_ptr().cast(), data.len(), libc::MSG_DONTWAIT) };
            if got < 0 { Err(Errno::last()) } else { Ok(got.to_string()) }
        }
        ["keepalive", id, seconds, count] => {
            let socket = get(sockets, id)?;
            option(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
            option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, number(seconds)?)?;
            option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, number(seconds)?)?;
            option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, number(count)?)?;
            Ok(String::new())
        }
        ["user_timeout", id, millis] => {
            option(get(sockets, id)?, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, number(millis)?)?;
            Ok(String::new())
        }
        ["linger", id] => {
            let value = libc::linger { l_onoff: 1, l_linger: 0 };
            set(get(sockets, id)?, libc::SOL_SOCKET, libc::SO_LINGER, &value)?;
            Ok(String::new())
        }
        ["shut", id] => {
            // SAFETY: a live descriptor.
            check(unsafe { libc::shutdown(get(sockets, id)?.as_raw_fd(), libc::SHUT_WR) })?;
            Ok(String::new())
        }
        ["fork"] => {
            // SAFETY: one thread; the child only waits, and dies with its parent.
            unsafe {
                if check(libc::fork())? == 0 {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    loop {
                        libc::pause();
                    }
                }
            }
            Ok(String::new())
        }
        ["close", id] => sockets.remove(id).map(|_| String::new()).ok_or(Errno::ENOENT),
        _ => Err(Errno::EINVAL),
    }
}

fn get<'a>(sockets: &'a Sockets, id: &str) -> Result<&'a OwnedFd, Errno> {
    sockets.get(id).ok_or(Errno::ENOENT)
}

fn parse(text: &str) -> Result<SocketAddr, Errno> {
    text.parse().map_err(|_| Errno::EINVAL)
}

fn number(text: &str) -> Result<c_int, Errno> {
    text.parse().map_err(|_| Errno::EINVAL)
}

fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

fn socket(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    // SAFETY: no pointers.
    let descriptor = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn nonblocking(socket: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: a live descriptor.
    check(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }).map(|_| ())
}

fn connect(socket: &OwnedFd, address: &SocketAddr) -> Result<(), Errno> {
    // SAFETY: a live descriptor and a filled address.
    with_address(address, |pointer, len| check(unsafe { libc::connect(socket.as_raw_fd(), pointer, len) })).map(|_| ())
}

fn with_address<T>(address: &SocketAddr, call: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> T) -> T {
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: all zero is a valid address.
            let mut raw: libc::sockaddr_in = unsafe { mem::zeroed() };
            raw.sin_family = AF_INET as u16;
            raw.sin_port = v4.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            call((&raw const raw).cast(), mem::size_of_val(&raw) as libc::socklen_t)
        }
        SocketAddr::V6(v6) => {
            // SAFETY: all zero is a valid address.
            let mut raw: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            raw.sin6_family = AF_INET6 as u16;
            raw.sin6_port = v6.port().to_be();
            raw.sin6_addr.s6_addr = v6.ip().octets();
            call((&raw const raw).cast(), mem::size_of_val(&raw) as libc::socklen_t)
        }
    }
}

fn option(socket: &OwnedFd, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    set(socket, level, name, &value)
}

fn set<T>(socket: &OwnedFd, level: c_int, name: c_int, value: &T) -> Result<(), Errno> {
    let len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: a live descriptor and a live value of that length.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len) })
        .map(|_| ())
}

fn error_of(socket: &OwnedFd) -> Result<c_int, Errno> {
    let mut errno: c_int = 0;
    let mut len = mem::size_of::<c_int>() as libc::socklen_t;
    // SAFETY: a live descriptor and a writable value of that length.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut errno).cast(), &raw mut len)
    })?;
    Ok(errno)
}

fn wait(socket: &OwnedFd, events: i16, millis: c_int) -> Result<(), Errno> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one live entry.
    match check(unsafe { libc::poll(&raw mut poll, 1, millis) })? {
        0 => Err(Errno::ETIMEDOUT),
        _ => Ok(()),
    }
}
