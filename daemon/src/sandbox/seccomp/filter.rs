//! A system call filter as data, and its assembly into the kernel's BPF. Pure: nothing here calls the system.

use super::table::Arch;

/// What the kernel does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Verdict {
    /// It is carried out.
    Allow,
    /// It is not carried out and answers with this error; 0 pretends success.
    Errno(u16),
    /// The process dies.
    Kill,
    /// The listener decides; once there is none, ENOSYS.
    Notify,
}

impl Verdict {
    const fn code(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Errno(errno) => 0x0005_0000 | errno as u32,
            Self::Kill => 0x8000_0000,
            Self::Notify => 0x7fc0_0000,
        }
    }
}

/// A condition on one argument. Arguments that the kernel takes as `int` are compared by their low half only, as the
/// kernel does: a comparison of all 64 bits would be passed by setting a high one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Test {
    /// All 64 bits.
    Is64(u64),
    /// The low 32 bits.
    Is32(u32),
    /// The low 32 bits under a mask.
    Masked32 {
        /// Bits that are looked at.
        mask: u32,
        /// What they must be.
        value: u32,
    },
}

/// When all tests hold, the verdict falls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sandbox) struct Clause {
    /// Argument index, 0 to 5, and what must hold of it.
    pub when: Vec<(u8, Test)>,
    /// The verdict.
    pub then: Verdict,
}

/// All about one system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sandbox) struct Rule {
    /// Its number.
    pub number: u32,
    /// Looked at in order.
    pub clauses: Vec<Clause>,
    /// When no clause holds.
    pub otherwise: Verdict,
}

/// A filter: another architecture's calls kill, calls without a rule get the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sandbox) struct Filter {
    /// Whose numbers the rules use.
    pub arch: Arch,
    /// Sorted by number, each number once.
    pub rules: Vec<Rule>,
    /// For all other calls.
    pub default: Verdict,
}

/// One BPF instruction, laid out as the kernel's `sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(in crate::sandbox) struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not.
    pub jump_false: u8,
    /// Constant, offset or distance.
    pub value: u32,
}

/// The operations in use, by their number in the kernel's headers.
pub(super) mod op {
    /// Loads a word of `seccomp_data` (`BPF_LD | BPF_W | BPF_ABS`).
    pub(in super::super) const LOAD: u16 = 0x20;
    /// Compares for equality with the constant (`BPF_JMP | BPF_JEQ | BPF_K`).
    pub(in super::super) const IF_EQUAL: u16 = 0x15;
    /// Compares for at least the constant (`BPF_JMP | BPF_JGE | BPF_K`).
    pub(in super::super) const IF_AT_LEAST: u16 = 0x35;
    /// Jumps by the constant (`BPF_JMP | BPF_JA`).
    pub(in super::super) const JUMP: u16 = 0x05;
    /// Masks with the constant (`BPF_ALU | BPF_AND | BPF_K`).
    pub(in super::super) const MASK: u16 = 0x54;
    /// Ends with the constant (`BPF_RET | BPF_K`).
    pub(in super::super) const RETURN: u16 = 0x06;
}

/// Offsets into `seccomp_data`; both architectures are little-endian.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const fn low(argument: u8) -> u32 {
    16 + 8 * argument as u32
}
const fn high(argument: u8) -> u32 {
    low(argument) + 4
}

const fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, value }
}
const fn give(verdict: Verdict) -> Instruction {
    plain(op::RETURN, verdict.code())
}

impl Filter {
    /// The kernel's program: architecture, then a search for the number by halves, then the arguments.
    pub(in crate::sandbox) fn assemble(&self) -> Vec<Instruction> {
        let mut program = vec![
            plain(op::LOAD, ARCH),
            Instruction { code: op::IF_EQUAL, jump_true: 1, jump_false: 0, value: self.arch.audit() },
            give(Verdict::Kill),
            plain(op::LOAD, NUMBER),
        ];
        let spans = self.spans();
        branch(&spans, &mut program);
        program
    }

    /// All numbers from 0 on, cut where the meaning changes.
    fn spans(&self) -> Vec<(u32, Meaning<'_>)> {
        let mut spans: Vec<(u32, Meaning<'_>)> = Vec::new();
        let mut push = |start, meaning| match spans.last() {
            Some((_, last)) if *last == meaning => {}
            _ => spans.push((start, meaning)),
        };
        let mut next = 0;
        for rule in &self.rules {
            if rule.number > next {
                push(next, Meaning::Plain(self.default));
            }
            push(rule.number, if rule.clauses.is_empty() { Meaning::Plain(rule.otherwise) } else { Meaning::Of(rule) });
            next = rule.number + 1;
        }
        push(next, Meaning::Plain(self.default));
        spans
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Meaning<'a> {
    Plain(Verdict),
    Of(&'a Rule),
}

/// Emits the search among spans whose first starts at or below the number in the accumulator.
fn branch(spans: &[(u32, Meaning<'_>)], program: &mut Vec<Instruction>) {
    match spans {
        [] => {}
        [(_, Meaning::Plain(verdict))] => program.push(give(*verdict)),
        [(_, Meaning::Of(rule))] => leaf(rule, program),
        _ => {
            let (below, above) = spans.split_at(spans.len() / 2);
            // Distances of comparisons are a byte, so the far side is reached by a jump, whose distance is a word.
            program.push(Instruction { code: op::IF_AT_LEAST, jump_true: 0, jump_false: 1, value: above[0].0 });
            let jump = program.len();
            program.push(plain(op::JUMP, 0));
            branch(below, program);
            program[jump].value = u32::try_from(program.len() - jump - 1).expect("a program is short");
            branch(above, program);
        }
    }
}

/// Emits the clauses of one call; every path ends in a return.
fn leaf(rule: &Rule, program: &mut Vec<Instruction>) {
    for clause in &rule.clauses {
        let start = program.len();
        for (argument, test) in &clause.when {
            match *test {
                Test::Is64(value) => {
                    #[expect(clippy::cast_possible_truncation, reason = "the two halves are compared one by one")]
                    let (upper, lower) = ((value >> 32) as u32, value as u32);
                    program.extend([plain(op::LOAD, high(*argument)), plain(op::IF_EQUAL, upper)]);
                    program.extend([plain(op::LOAD, low(*argument)), plain(op::IF_EQUAL, lower)]);
                }
                Test::Is32(value) => {
                    program.extend([plain(op::LOAD, low(*argument)), plain(op::IF_EQUAL, value)]);
                }
                Test::Masked32 { mask, value } => {
                    program.extend([plain(op::LOAD, low(*argument)), plain(op::MASK, mask), plain(op::IF_EQUAL, value)])
                }
            }
        }
        program.push(give(clause.then));
        let end = program.len();
        for (at, instruction) in program.iter_mut().enumerate().skip(start) {
            if instruction.code == op::IF_EQUAL {
                instruction.jump_false = u8::try_from(end - at - 1).expect("a clause has few tests");
            }
        }
    }
    program.push(give(rule.otherwise));
}

/// What the kernel shows of a call to a filter.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) arch: u32,
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
}

#[cfg(test)]
impl Filter {
    /// What the filter means, said without BPF.
    pub(super) fn judge(&self, call: &Call) -> Verdict {
        if call.arch != self.arch.audit() {
            return Verdict::Kill;
        }
        let Some(rule) = self.rules.iter().find(|rule| rule.number == call.number) else { return self.default };
        let holds = |(argument, test): &(u8, Test)| {
            let value = call.arguments[usize::from(*argument)];
            match *test {
                Test::Is64(wanted) => value == wanted,
                Test::Is32(wanted) => value & 0xffff_ffff == u64::from(wanted),
                Test::Masked32 { mask, value: wanted } => value & u64::from(mask) == u64::from(wanted),
            }
        };
        rule.clauses.iter().find(|clause| clause.when.iter().all(holds)).map_or(rule.otherwise, |clause| clause.then)
    }
}

/// Runs a program as the kernel does, checking what the kernel's verifier checks.
#[cfg(test)]
pub(super) fn interpret(program: &[Instruction], call: &Call) -> u32 {
    let mut data = Vec::new();
    data.extend(call.number.to_le_bytes());
    data.extend(call.arch.to_le_bytes());
    data.extend(0x7fff_1234_5678_u64.to_le_bytes());
    call.arguments.iter().for_each(|argument| data.extend(argument.to_le_bytes()));
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let instruction = program[at];
        at += 1;
        let skip =
            |condition: bool| usize::from(if condition { instruction.jump_true } else { instruction.jump_false });
        match instruction.code {
            op::LOAD => {
                assert!(
                    instruction.value.is_multiple_of(4) && instruction.value < 64,
                    "only aligned words of seccomp_data"
                );
                let from = usize::try_from(instruction.value).unwrap();
                accumulator = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
            }
            op::IF_EQUAL => at += skip(accumulator == instruction.value),
            op::IF_AT_LEAST => at += skip(accumulator >= instruction.value),
            op::JUMP => at += usize::try_from(instruction.value).unwrap(),
            op::MASK => accumulator &= instruction.value,
            op::RETURN => return instruction.value,
            other => panic!("operation {other:#x} is not used"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            Just(Verdict::Allow),
            (0..200_u16).prop_map(Verdict::Errno),
            Just(Verdict::Kill),
            Just(Verdict::Notify)
        ]
    }

    fn value() -> impl Strategy<Value = u64> {
        prop_oneof![0..4_u64, any::<u64>(), (0..4_u64).prop_map(|low| low | 1 << 32), Just(u64::MAX)]
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits do")]
    fn test() -> impl Strategy<Value = Test> {
        prop_oneof![
            value().prop_map(Test::Is64),
            value().prop_map(|value| Test::Is32(value as u32)),
            (value(), value())
                .prop_map(|(mask, value)| Test::Masked32 { mask: mask as u32, value: (mask & value) as u32 }),
        ]
    }

    fn filter() -> impl Strategy<Value = Filter> {
        let clause =
            (prop::collection::vec((0..6_u8, test()), 0..4), verdict()).prop_map(|(when, then)| Clause { when, then });
        let rule = (prop::collection::vec(clause, 0..4), verdict());
        let arch = prop_oneof![Just(Arch::X86_64), Just(Arch::Aarch64)];
        (arch, prop::collection::btree_map(0..600_u32, rule, 0..60), verdict()).prop_map(|(arch, rules, default)| {
            Filter {
                arch,
                rules: rules
                    .into_iter()
                    .map(|(number, (clauses, otherwise))| Rule { number, clauses, otherwise })
                    .collect(),
                default,
            }
        })
    }

    fn call() -> impl Strategy<Value = Call> {
        let arch = prop_oneof![8 => Just(Arch::X86_64.audit()), 8 => Just(Arch::Aarch64.audit()), 1 => any::<u32>()];
        let number = prop_oneof![8 => 0..600_u32, 1 => any::<u32>()];
        (arch, number, [value(), value(), value(), value(), value(), value()])
            .prop_map(|(arch, number, arguments)| Call { arch, number, arguments })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_program_means_what_the_filter_says(filter in filter(), calls in prop::collection::vec(call(), 100)) {
            let program = filter.assemble();
            prop_assert!(program.len() <= 4096, "the kernel's bound");
            for call in calls {
                prop_assert_eq!(interpret(&program, &call), filter.judge(&call).code());
            }
        }
    }
}
