//! What a command line says of a Java virtual machine's handling of DNS, and nothing else of it.
//!
//! The launcher takes options up to the main class (or `-jar FILE`, `-m MODULE`); what stands after it belongs to the
//! program and sets nothing. Of a property that is set twice the last one counts.

use storewatch_core::process::{CommandLine, FlagValue};

/// Bytes of a command line that are read: a class path of hundreds of jars takes some 30 KiB.
pub(super) const LONGEST: usize = 256 * 1024;

/// Options that take the next argument as their value.
const WITH_VALUE: [&str; 13] = [
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--limit-modules",
    "--add-reads",
    "--add-exports",
    "--add-opens",
    "--patch-module",
    "--source",
];

/// Options after whose value the program's own arguments begin.
const LAST: [&str; 3] = ["-jar", "-m", "--module"];

/// The facts of a command line as the kernel gives it: arguments that end in NUL. `None` for an empty one.
pub(super) fn facts(bytes: &[u8]) -> Option<CommandLine> {
    let whole = bytes.len() <= LONGEST;
    let mut arguments = bytes.get(..LONGEST).unwrap_or(bytes).split(|byte| *byte == 0).peekable();
    let program = arguments.next().filter(|program| !program.is_empty())?;
    let mut facts = CommandLine { java: is_java(program), whole, ..CommandLine::default() };
    if !facts.java {
        return Some(facts);
    }
    while let Some(argument) = arguments.next() {
        // The end of the last argument is not the begin of another one.
        if argument.is_empty() && arguments.peek().is_none() {
            break;
        }
        let text = String::from_utf8_lossy(argument);
        if LAST.contains(&&*text) || !text.starts_with(['-', '@']) {
            return Some(CommandLine { whole: true, ..facts });
        }
        if WITH_VALUE.contains(&&*text) {
            arguments.next();
        }
        take(&mut facts, &text);
    }
    Some(facts)
}

fn take(facts: &mut CommandLine, argument: &str) {
    // `@file`, but not `@@`, which stands for one @.
    facts.more_elsewhere |= argument.starts_with('@') && !argument.starts_with("@@");
    let Some((key, value)) = argument.strip_prefix("-D").map(|rest| rest.split_once('=').unwrap_or((rest, ""))) else {
        return;
    };
    let value_of = || value.trim().parse().map_or(FlagValue::Other, FlagValue::Number);
    match key {
        "sun.net.inetaddr.ttl" => facts.dns_ttl = Some(value_of()),
        "networkaddress.cache.ttl" => facts.cache_ttl = Some(value_of()),
        // `allow` and `disallow` only say whether one may be set later.
        "java.security.manager" => facts.security_manager = !matches!(value, "allow" | "disallow"),
        "java.security.properties" => facts.more_elsewhere = true,
        _ => {}
    }
}

fn is_java(program: &[u8]) -> bool {
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or(program);
    matches!(name, b"java" | b"javaw")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(arguments: &[&str]) -> Vec<u8> {
        arguments.iter().flat_map(|argument| argument.bytes().chain([0])).collect()
    }

    fn java(arguments: &[&str]) -> CommandLine {
        let all: Vec<_> = ["/usr/lib/jvm/java-11/bin/java"].iter().chain(arguments).copied().collect();
        facts(&line(&all)).unwrap()
    }

    #[test]
    fn flags_count_before_the_main_class_and_nowhere_else() {
        let rows: [(&[&str], Option<FlagValue>); 14] = [
            (&["-Xmx1g", "-Dsun.net.inetaddr.ttl=30", "-cp", "a:b", "org.Main"], Some(FlagValue::Number(30))),
            (&["-Dsun.net.inetaddr.ttl=30", "-Dsun.net.inetaddr.ttl=-1", "org.Main"], Some(FlagValue::Number(-1))),
            (&["-Dsun.net.inetaddr.ttl=0", "-jar", "a.jar"], Some(FlagValue::Number(0))),
            (&["-Dsun.net.inetaddr.ttl=secret", "org.Main"], Some(FlagValue::Other)),
            (&["-Dsun.net.inetaddr.ttl", "org.Main"], Some(FlagValue::Other)),
            (&["-cp", "-Dsun.net.inetaddr.ttl=30", "org.Main"], None),
            (&["--class-path=x", "-Dsun.net.inetaddr.ttl=30", "org.Main"], Some(FlagValue::Number(30))),
            (&["org.Main", "-Dsun.net.inetaddr.ttl=30"], None),
            (&["-jar", "-Dsun.net.inetaddr.ttl=30", "-Dsun.net.inetaddr.ttl=30"], None),
            (&["-m", "a/b", "-Dsun.net.inetaddr.ttl=30"], None),
            (&["-Dsun.net.inetaddr.ttl.x=30", "org.Main"], None),
            (&["-Dx=-Dsun.net.inetaddr.ttl=30", "org.Main"], None),
            (&["-Dsun.net.inetaddr.negative.ttl=30", "org.Main"], None),
            (&[], None),
        ];
        for (arguments, ttl) in rows {
            let facts = java(arguments);
            assert_eq!((facts.dns_ttl, facts.java, facts.whole), (ttl, true, true), "{arguments:?}");
        }
    }

    #[test]
    fn what_else_matters_is_told() {
        let facts = java(&["-Dnetworkaddress.cache.ttl=10", "-Djava.security.manager", "org.Main"]);
        assert_eq!(
            (facts.cache_ttl, facts.security_manager, facts.more_elsewhere),
            (Some(FlagValue::Number(10)), true, false)
        );
        assert!(!java(&["-Djava.security.manager=disallow", "org.Main"]).security_manager);
        assert!(java(&["-Djava.security.manager=default", "org.Main"]).security_manager);
        assert!(java(&["-Djava.security.properties=/f", "org.Main"]).more_elsewhere);
        assert!(java(&["@options", "org.Main"]).more_elsewhere);
        assert!(!java(&["org.Main", "@options"]).more_elsewhere);
    }

    #[test]
    fn only_a_java_launcher_is_java() {
        for (program, is) in [
            ("java", true),
            ("/opt/jre/bin/java", true),
            ("javac", false),
            ("/usr/bin/python3", false),
            ("/java/run", false),
        ] {
            assert_eq!(facts(&line(&[program, "-Dsun.net.inetaddr.ttl=30"])).unwrap().java, is, "{program}");
        }
        assert_eq!(facts(b""), None);
        assert_eq!(facts(b"\0\0"), None);
    }

    #[test]
    fn a_long_line_is_cut_and_said_to_be() {
        let long = "x".repeat(LONGEST);
        let cut = facts(&line(&["java", "-cp", &long, "-Dsun.net.inetaddr.ttl=30", "org.Main"])).unwrap();
        assert_eq!((cut.dns_ttl, cut.whole), (None, false));
        // The main class was reached before the cut: what follows sets nothing.
        assert!(facts(&line(&["java", "org.Main", &long])).unwrap().whole);
    }

    proptest! {
        #[test]
        fn any_bytes_are_facts(bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(b'-'), Just(b'='), any::<u8>()], 0..200)) {
            let _ = facts(&bytes);
            let mut java = b"java\0".to_vec();
            java.extend(&bytes);
            prop_assert!(facts(&java).unwrap().java);
        }
    }
}
