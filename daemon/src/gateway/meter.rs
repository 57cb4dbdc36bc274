//! Runs a schema validator on a meter: a check ends when its steps, its time or its stack are used up, whatever the
//! schema and the value are. Schemas come from servers and values from programs; neither may hold a thread of ours.
//!
//! The validator reads its value only through [`Metered`], so that each look is counted. The way out of a check that
//! is over its limits is an unwind, since the validator has no other.

use std::{
    borrow::Cow,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant},
};

use jsonschema::{
    JsonType,
    json::{Array, Json, Node, NodeIdentity, Object},
};
use serde_json::{Map, Value};

/// What one check may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Looks at parts of the value.
    pub steps: u64,
    /// Time on the thread.
    pub time: Duration,
}

/// Stack that one check may use, in bytes; threads have 2 MiB.
const STACK_BYTES: usize = 768 << 10;
/// Steps between two looks at the clock.
const STEPS_PER_LOOK: u64 = 256;

#[derive(Clone, Copy)]
struct Meter {
    steps: u64,
    until: Instant,
    stack: usize,
}

thread_local! {
    static METER: Cell<Option<Meter>> = const { Cell::new(None) };
}

/// The token that an unwinding check carries.
struct UsedUp;

/// Runs the check on this thread; `None` when it was over the allowance or the validator itself broke.
pub(super) fn run<T>(allowance: Allowance, check: impl FnOnce() -> T) -> Option<T> {
    let meter = Meter { steps: allowance.steps, until: Instant::now() + allowance.time, stack: stack_address() };
    METER.set(Some(meter));
    // The validator keeps no state between checks, so nothing half-done is seen again.
    let outcome = catch_unwind(AssertUnwindSafe(check));
    METER.set(None);
    outcome.ok()
}

fn tick() {
    let Some(mut meter) = METER.get() else { return };
    let spent = meter.steps == 0
        || meter.stack.abs_diff(stack_address()) > STACK_BYTES
        || (meter.steps % STEPS_PER_LOOK == 0 && Instant::now() > meter.until);
    if spent {
        METER.set(None);
        resume_unwind(Box::new(UsedUp));
    }
    meter.steps -= 1;
    METER.set(Some(meter));
}

/// About where the stack of this thread is now.
#[inline(never)]
fn stack_address() -> usize {
    let marker = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&marker)).addr()
}

/// `serde_json` values whose every reading is counted.
#[derive(Debug)]
pub(super) struct Metered;

/// One counted value.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeteredNode<'a>(pub &'a Value);

impl Json for Metered {
    type Node<'a> = MeteredNode<'a>;
    type PreparedKey = String;
    type StringBuffer = ();
    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(MeteredNode<'_>) -> T) -> T {
        f(MeteredNode(&Value::String(string.to_owned())))
    }
}

impl<'a> Node<'a, Metered> for MeteredNode<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a serde_json::Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        tick();
        self.0.as_object().map(MeteredObject)
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        tick();
        self.0.as_array().map(|items| MeteredArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        tick();
        self.0.as_str().map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a serde_json::Number> {
        tick();
        match self.0 {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        tick();
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        tick();
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        tick();
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        tick();
        jsonschema::json::cmp::equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        tick();
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        tick();
        Some(NodeIdentity::new(std::ptr::from_ref(self.0).addr()))
    }
}

/// One counted object.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeteredObject<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, Metered> for MeteredObject<'a> {
    type Node = MeteredNode<'a>;
    type MemberName = &'a str;
    type MembersIter =
        std::iter::Map<serde_json::map::Iter<'a>, fn((&'a String, &'a Value)) -> (&'a str, MeteredNode<'a>)>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeteredNode<'a>> {
        tick();
        self.0.get(key.as_str()).map(MeteredNode)
    }

    fn members(&self) -> Self::MembersIter {
        self.0.iter().map(|(name, value)| {
            tick();
            (name.as_str(), MeteredNode(value))
        })
    }
}

/// One counted array.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeteredArray<'a>(&'a [Value]);

impl<'a> Array<'a, Metered> for MeteredArray<'a> {
    type Node = MeteredNode<'a>;
    type ElementsIter = std::iter::Map<std::slice::Iter<'a, Value>, fn(&'a Value) -> MeteredNode<'a>>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> Self::ElementsIter {
        self.0.iter().map(|item| {
            tick();
            MeteredNode(item)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SMALL: Allowance = Allowance { steps: 50_000, time: Duration::from_secs(5) };

    fn validator(schema: &Value) -> jsonschema::Validator<Metered> {
        jsonschema::options_for::<Metered>().offline().build(schema).unwrap()
    }

    #[test]
    fn an_honest_check_is_within_its_allowance() {
        let schema =
            validator(&json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}));
        let good = json!({"a": (0..1000).collect::<Vec<_>>()});
        assert_eq!(run(SMALL, || schema.is_valid(MeteredNode(&good))), Some(true));
        assert_eq!(run(SMALL, || schema.is_valid(MeteredNode(&json!({"a": ["x"]})))), Some(false));
    }

    #[test]
    fn a_recursive_schema_over_a_deep_value_is_given_up_in_time() {
        let schema = validator(&json!({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [
            {"type": "object", "properties": {"k": {"$ref": "#/$defs/n"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"allOf": [{"$ref": "#/$defs/n"}]}}, "required": ["k"]},
        ]}}}));
        let mut value = json!("x");
        for _ in 0..120 {
            value = json!({"k": value});
        }
        let began = Instant::now();
        let _verdict = run(SMALL, || schema.is_valid(MeteredNode(&value)));
        let _verdict = run(SMALL, || schema.iter_errors(MeteredNode(&value)).count());
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
