//! Answers that are no results yet (since 2026-07-28): the server asks for input, and wants to be called again with it,
//! and with what it wants to remember. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// A call is made so often.
pub(super) const MAX_ROUNDS: usize = 10;

/// What follows an answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: it is the result.
    Result,
    /// The same call once more, with these members of `params` beside its own.
    Again(String),
    /// Nothing can: the answer is of this kind, or asks for this.
    Unsupported(String),
}

/// Reads an answer. `roots` is the result that a request for roots gets.
pub(super) fn next(answer: &RawValue, roots: &str) -> Next {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer<'a> {
        result_type: Option<String>,
        input_requests: Option<BTreeMap<String, Request>>,
        #[serde(borrow)]
        request_state: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Request {
        method: String,
    }
    // Nearly all answers are results, and some are large.
    if !answer.get().contains(r#""resultType""#) {
        return Next::Result;
    }
    let Ok(answer) = serde_json::from_str::<Answer<'_>>(answer.get()) else { return Next::Result };
    match answer.result_type.as_deref() {
        None | Some("complete") => return Next::Result,
        Some("input_required") => {}
        Some(other) => return Next::Unsupported(other.to_owned()),
    }
    let mut members = Vec::new();
    if let Some(requests) = answer.input_requests {
        let mut responses = Vec::new();
        for (key, Request { method }) in requests {
            // Nobody is here to be asked.
            let response = match method.as_str() {
                "elicitation/create" => r#"{"action":"decline"}"#,
                "roots/list" => roots,
                _ => return Next::Unsupported(method),
            };
            responses.push(format!("{}:{response}", Value::from(key)));
        }
        members.push(format!(r#""inputResponses":{{{}}}"#, responses.join(",")));
    }
    members.extend(answer.request_state.map(|state| format!(r#""requestState":{}"#, state.get())));
    if members.is_empty() {
        return Next::Unsupported("input_required".to_owned());
    }
    Next::Again(members.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(answer: &str) -> Next {
        next(&RawValue::from_string(answer.to_owned()).unwrap(), r#"{"roots":[]}"#)
    }

    #[test]
    fn what_is_asked_for_is_answered_and_what_is_to_be_kept_goes_back_as_it_came() {
        let asked = r#"{"resultType":"input_required","requestState":"\u0041 1","inputRequests":{
            "who":{"method":"elicitation/create","params":{}},"where":{"method":"roots/list"}}}"#;
        let again = r#""inputResponses":{"where":{"roots":[]},"who":{"action":"decline"}},"requestState":"\u0041 1""#;
        assert_eq!(of(asked), Next::Again(again.into()));
        let kept = of(r#"{"resultType":"input_required","requestState":"x"}"#);
        assert_eq!(kept, Next::Again(r#""requestState":"x""#.into()));
    }

    #[test]
    fn a_result_is_one_and_other_kinds_are_named() {
        for result in [r#"{"content":[]}"#, r#"{"resultType":"complete"}"#, r#"{"content":"\"resultType\""}"#] {
            assert_eq!(of(result), Next::Result);
        }
        let empty = of(r#"{"resultType":"input_required"}"#);
        assert_eq!(empty, Next::Unsupported("input_required".into()));
        assert_eq!(of(r#"{"resultType":"task"}"#), Next::Unsupported("task".into()));
        let sampling = r#"{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage"}}}"#;
        assert_eq!(of(sampling), Next::Unsupported("sampling/createMessage".into()));
    }
}
