//! The rules, each with its reason, and how they are written down. Later rules win over earlier ones.

use std::fmt;

use super::{Closure, SCRATCH};

/// What a rule is about, by Seatbelt's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Default,
    ProcessExec,
    FileRead,
    FileReadData,
    FileReadMetadata,
    FileMapExecutable,
    FileWriteCreate,
    FileWriteData,
    FileWriteUnlink,
    FileWriteMode,
    FileWriteTimes,
    FileWriteFlags,
    FileWriteSetugid,
    SysctlRead,
    Signal,
    ProcessInfo,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::ProcessExec => "process-exec*",
            Self::FileRead => "file-read*",
            Self::FileReadData => "file-read-data",
            Self::FileReadMetadata => "file-read-metadata",
            Self::FileMapExecutable => "file-map-executable",
            Self::FileWriteCreate => "file-write-create",
            Self::FileWriteData => "file-write-data",
            Self::FileWriteUnlink => "file-write-unlink",
            Self::FileWriteMode => "file-write-mode",
            Self::FileWriteTimes => "file-write-times",
            Self::FileWriteFlags => "file-write-flags",
            Self::FileWriteSetugid => "file-write-setugid",
            Self::SysctlRead => "sysctl-read",
            Self::Signal => "signal",
            Self::ProcessInfo => "process-info*",
        })
    }
}

/// Where a path of a filter comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// A parameter.
    Parameter(String),
    /// A path that is the same on every Mac.
    Fixed(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter(name) => write!(f, "(param \"{name}\")"),
            Self::Fixed(path) => write!(f, "\"{path}\""),
        }
    }
}

/// On what.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Filter {
    /// This very path.
    Literal(Place),
    /// This path and all below it.
    Subpath(Place),
    /// Plain files, folders and links below this path.
    Ordinary(Place),
    /// A value of the kernel by name.
    Sysctl(&'static str),
    /// Values of the kernel whose names begin so.
    SysctlPrefix(&'static str),
    /// The process itself.
    TargetSelf,
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(place) => write!(f, "(literal {place})"),
            Self::Subpath(place) => write!(f, "(subpath {place})"),
            Self::Ordinary(place) => write!(
                f,
                "(require-all (subpath {place}) (require-any (vnode-type REGULAR-FILE) (vnode-type DIRECTORY) \
                 (vnode-type SYMLINK)))"
            ),
            Self::Sysctl(name) => write!(f, "(sysctl-name \"{name}\")"),
            Self::SysctlPrefix(prefix) => write!(f, "(sysctl-name-prefix \"{prefix}\")"),
            Self::TargetSelf => f.write_str("(target self)"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Allow,
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    action: Action,
    operations: Vec<Operation>,
    filters: Vec<Filter>,
    /// Why, as a sentence beside it.
    reason: &'static str,
}

/// All rules in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    rules: Vec<Rule>,
}

/// Values of the kernel that the C library, malloc, libpthread, `os.cpu_count` and `platform` ask for. Not the host's
/// name, not the list of processes, nothing of the network.
const SYSCTLS: [&str; 28] = [
    "hw.ncpu",
    "hw.activecpu",
    "hw.logicalcpu",
    "hw.logicalcpu_max",
    "hw.physicalcpu",
    "hw.physicalcpu_max",
    "hw.pagesize",
    "hw.pagesize_compat",
    "hw.memsize",
    "hw.machine",
    "hw.cputype",
    "hw.cpufamily",
    "hw.cachelinesize",
    "hw.cachelinesize_compat",
    "hw.nperflevels",
    "kern.ostype",
    "kern.osrelease",
    "kern.osversion",
    "kern.osproductversion",
    "kern.version",
    "kern.osvariant_status",
    "kern.secure_kernel",
    "kern.usrstack64",
    "kern.maxfilesperproc",
    "kern.argmax",
    "sysctl.proc_cputype",
    "sysctl.proc_translated",
    "security.mac.lockdown_mode_state",
];
const SYSCTL_PREFIXES: [&str; 2] = ["hw.optional.", "hw.perflevel"];
/// Code of the system itself: the loader, its shared cache, and the frameworks that system libraries pull in.
const SYSTEM_CODE: [&str; 6] = [
    "/usr/lib",
    "/System/Library/dyld",
    "/System/Library/Frameworks",
    "/System/Library/PrivateFrameworks",
    "/System/Cryptexes/OS",
    "/System/Volumes/Preboot/Cryptexes/OS",
];
const TIME_ZONES: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/zoneinfo.default", "/private/var/db/timezone"];

/// The rules for a closure; only the lengths of its lists matter.
pub(super) fn profile(closure: &Closure) -> Profile {
    use Action::{Allow, Deny};
    use Operation as O;
    let fixed = |paths: &[&'static str], filter: fn(Place) -> Filter| -> Vec<Filter> {
        paths.iter().map(|path| filter(Place::Fixed(path))).collect()
    };
    let listed = |list: &str, filter: fn(Place) -> Filter| -> Vec<Filter> {
        let count = closure.lists().iter().find(|(name, _)| *name == list).map_or(0, |(_, paths)| paths.len());
        (0..count).map(|index| filter(Place::Parameter(format!("{list}{index}")))).collect()
    };
    let named = |name: &str, filter: fn(Place) -> Filter| vec![filter(Place::Parameter(name.to_owned()))];
    let mut rules = Vec::new();
    let mut rule = |action, operations: &[Operation], filters: Vec<Filter>, reason| {
        // A rule about an empty list would be a rule about everything.
        if operations == [O::Default] || !filters.is_empty() {
            rules.push(Rule { action, operations: operations.to_vec(), filters, reason });
        }
    };
    rule(
        Deny,
        &[O::Default],
        vec![],
        "Closed unless a rule below opens it: network, Mach services, IPC, devices, fork.",
    );
    rule(
        Allow,
        &[O::ProcessExec],
        named("IMAGE", Filter::Literal),
        "sandbox-exec executes the interpreter once. Executing it again keeps the sandbox and breaks the channel's protocol, \
         which ends the program; without fork there is never a second process.",
    );
    let mut code = named("IMAGE", Filter::Literal);
    code.extend(listed("LIBRARY", Filter::Literal));
    rule(
        Allow,
        &[O::FileRead, O::FileMapExecutable],
        code,
        "The interpreter and the libraries that its loader opened.",
    );
    rule(Allow, &[O::FileRead], listed("MODULES", Filter::Subpath), "The standard library.");
    rule(Allow, &[O::FileMapExecutable], listed("EXTENSIONS", Filter::Subpath), "Its extension modules are code.");
    rule(
        Deny,
        &[O::FileRead],
        listed("PACKAGES", Filter::Subpath),
        "Other people's packages lie inside the standard library's folder and may hold anything.",
    );
    rule(
        Allow,
        &[O::FileReadMetadata],
        listed("ANCESTOR", Filter::Literal),
        "realpath and getpath look at every folder on the way. One by one: allowing it everywhere would tell existence, \
         size and times of every file.",
    );
    rule(
        Allow,
        &[O::FileRead],
        listed("HOP", Filter::Literal),
        "Links on the way must be readable, each by its own name.",
    );
    rule(
        Allow,
        &[O::FileReadData, O::FileReadMetadata],
        fixed(&["/"], Filter::Literal),
        "The loader of macOS 26 aborts without it. It shows the names in the root folder, which are the same everywhere.",
    );
    rule(
        Allow,
        &[O::FileRead, O::FileMapExecutable],
        fixed(&SYSTEM_CODE, Filter::Subpath),
        "Code of the system itself.",
    );
    rule(Allow, &[O::FileRead, O::FileWriteData], fixed(&["/dev/null"], Filter::Literal), "os.devnull.");
    rule(
        Allow,
        &[O::FileReadData, O::FileReadMetadata],
        fixed(&["/dev/urandom", "/dev/random", "/dev/zero"], Filter::Literal),
        "Programs that open them; os.urandom itself does not.",
    );
    rule(Allow, &[O::FileRead], fixed(&TIME_ZONES, Filter::Subpath), "zoneinfo and local time.");
    let mut values: Vec<_> = SYSCTLS.into_iter().map(Filter::Sysctl).collect();
    values.extend(SYSCTL_PREFIXES.map(Filter::SysctlPrefix));
    rule(Allow, &[O::SysctlRead], values, "Facts about the machine that the C library and os.cpu_count need.");
    rule(
        Allow,
        &[
            O::FileRead,
            O::FileWriteCreate,
            O::FileWriteData,
            O::FileWriteUnlink,
            O::FileWriteMode,
            O::FileWriteTimes,
            O::FileWriteFlags,
        ],
        named(SCRATCH, Filter::Ordinary),
        "The scratch directory. Operations are named one by one, so that hard links and clones stay denied: a link to a file \
         of the interpreter would make it writable, since Seatbelt judges by path. No code is mapped from here.",
    );
    rule(Deny, &[O::FileWriteSetugid], named(SCRATCH, Filter::Subpath), "A setuid file would outlive the program.");
    rule(
        Allow,
        &[O::Signal, O::ProcessInfo],
        vec![Filter::TargetSelf],
        "raise, getrusage. Not the same sandbox: children beside it in the pool are strangers.",
    );
    Profile { rules }
}

impl Rule {
    fn text(&self) -> String {
        let mut text = String::from(match self.action {
            Action::Allow => "(allow",
            Action::Deny => "(deny",
        });
        for operation in &self.operations {
            text.push_str(&format!(" {operation}"));
        }
        for filter in &self.filters {
            text.push_str(&format!("\n  {filter}"));
        }
        text + ")\n"
    }
}

impl Profile {
    /// The text for `sandbox-exec -p`.
    pub(super) fn text(&self) -> String {
        let rules: String = self.rules.iter().map(Rule::text).collect();
        format!("(version 1)\n{rules}")
    }

    /// The same with the reason above each rule, for people.
    #[cfg(test)]
    fn explained(&self) -> String {
        let rules: String = self.rules.iter().map(|rule| format!("; {}\n{}", rule.reason, rule.text())).collect();
        format!("(version 1)\n{rules}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn closure() -> Closure {
        let paths = |names: &[&str]| names.iter().map(std::path::PathBuf::from).collect::<BTreeSet<_>>();
        Closure {
            image: "/p/bin/python3.12".into(),
            libraries: paths(&["/p/lib/libpython3.12.dylib", "/q/libssl.dylib"]),
            modules: paths(&["/p/lib/python3.12"]),
            extensions: paths(&["/p/lib/python3.12/lib-dynload"]),
            packages: paths(&["/p/lib/python3.12/site-packages"]),
            hops: paths(&["/l"]),
            ancestors: paths(&["/p", "/p/lib"]),
        }
    }

    /// Operations and filters that Seatbelt knows, as its public profiles use them.
    const OPERATIONS: [&str; 16] = [
        "default",
        "process-exec*",
        "file-read*",
        "file-read-data",
        "file-read-metadata",
        "file-map-executable",
        "file-write-create",
        "file-write-data",
        "file-write-unlink",
        "file-write-mode",
        "file-write-times",
        "file-write-flags",
        "file-write-setugid",
        "sysctl-read",
        "signal",
        "process-info*",
    ];
    const FILTERS: [&str; 9] = [
        "literal",
        "subpath",
        "require-all",
        "require-any",
        "vnode-type",
        "sysctl-name",
        "sysctl-name-prefix",
        "target",
        "param",
    ];

    /// An expression of the profile language, as far as profiles of ours use it.
    #[derive(Debug, PartialEq)]
    enum Expression {
        Word(String),
        Text(String),
        List(Vec<Expression>),
    }

    fn read(text: &str) -> Vec<Expression> {
        let mut stack = vec![Vec::new()];
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match first {
                ';' => rest = rest.split_once('\n').map_or("", |(_, rest)| rest),
                '(' => {
                    stack.push(Vec::new());
                    rest = &rest[1..];
                }
                ')' => {
                    let list = stack.pop().unwrap();
                    stack.last_mut().expect("parentheses match").push(Expression::List(list));
                    rest = &rest[1..];
                }
                '"' => {
                    let (inside, after) = rest[1..].split_once('"').expect("quotes match");
                    stack.last_mut().unwrap().push(Expression::Text(inside.to_owned()));
                    rest = after;
                }
                blank if blank.is_whitespace() => rest = &rest[1..],
                _ => {
                    let end = rest.find(|c: char| c.is_whitespace() || "()\"".contains(c)).unwrap_or(rest.len());
                    stack.last_mut().unwrap().push(Expression::Word(rest[..end].to_owned()));
                    rest = &rest[end..];
                }
            }
        }
        assert_eq!(stack.len(), 1, "parentheses match");
        stack.pop().unwrap()
    }

    fn parameters(expression: &Expression, found: &mut BTreeSet<String>) {
        if let Expression::List(list) = expression {
            if let [Expression::Word(word), Expression::Text(name)] = &list[..]
                && word == "param"
            {
                found.insert(name.clone());
            }
            list.iter().for_each(|inner| parameters(inner, found));
        }
    }

    fn lint_filter(expression: &Expression) {
        let Expression::List(list) = expression else { panic!("{expression:?} is no filter") };
        let Some(Expression::Word(name)) = list.first() else { panic!("{expression:?} has no name") };
        assert!(FILTERS.contains(&name.as_str()), "unknown filter {name}");
        list[1..].iter().filter(|inner| matches!(inner, Expression::List(_))).for_each(lint_filter);
    }

    #[test]
    fn every_word_is_one_that_seatbelt_knows_and_every_parameter_has_a_value() {
        let text = profile(&closure()).explained();
        let rules = read(&text);
        assert_eq!(read(&profile(&closure()).text()), rules, "reasons are comments only");
        let mut used = BTreeSet::new();
        for rule in &rules[1..] {
            let Expression::List(parts) = rule else { panic!("{rule:?} is no rule") };
            assert!(matches!(&parts[0], Expression::Word(action) if action == "allow" || action == "deny"), "{rule:?}");
            let operations: Vec<_> = parts[1..]
                .iter()
                .map_while(|part| if let Expression::Word(word) = part { Some(word.as_str()) } else { None })
                .collect();
            assert!(!operations.is_empty(), "{rule:?}");
            operations.iter().for_each(|name| assert!(OPERATIONS.contains(name), "unknown operation {name}"));
            let filters = &parts[1 + operations.len()..];
            assert!(!filters.is_empty() || operations == ["default"], "a rule about everything: {rule:?}");
            filters.iter().for_each(lint_filter);
            parameters(rule, &mut used);
        }
        let mut given: BTreeSet<_> = closure().parameters().unwrap().into_iter().map(|(name, _)| name).collect();
        given.insert(SCRATCH.to_owned());
        assert_eq!(used, given);
    }

    #[test]
    fn what_must_never_be_allowed_is_not_mentioned() {
        let text = profile(&closure()).text();
        assert!(text.starts_with("(version 1)\n(deny default)\n"));
        for word in [
            "allow default",
            "process-fork",
            "network",
            "mach-",
            "iokit",
            "ipc-",
            "file-write*",
            "file-link",
            "file-clone",
            "import",
            "regex",
            "system-socket",
            "hostname",
            "/Users",
            "/p/",
        ] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn empty_lists_make_no_rules_about_everything() {
        let bare = Closure { image: "/p".into(), ..Closure::default() };
        let text = profile(&bare).text();
        assert!(!text.contains("(allow file-read*)") && !text.contains("(deny file-read*)"), "{text}");
    }

    #[test]
    fn the_profile_with_its_reasons() {
        insta::assert_snapshot!(profile(&closure()).explained());
    }
}
