//! The programs that stand in every description of programmatic tool calling, against a server that its author wrote
//! with the official Python SDK.

use ptc_tests::{
    World,
    config::{config, finance},
};
use serde_json::json;

fn world() -> World {
    World::ready(&config(vec![finance("financial-data")], &json!({})))
}

#[test]
fn three_tickers_are_compared_in_one_program() {
    let world = world();
    let result = world.session().program(
        r#"
tickers = ["AMZN", "MSFT", "GOOG"]
for ticker in tickers:
    rows = await mcp__financial_data__query_financials(ticker=ticker, statement="income", period="quarterly", limit=3)
    revenues = [row["revenue"] for row in rows]
    print(f"{ticker}: {' → '.join(f'{r:,.1f}' for r in reversed(revenues))}")
"#,
    );
    assert_eq!(
        result.output(),
        "AMZN: 117,455.5 → 128,495.8 → 143,696.2\n\
         MSFT: 49,567.5 → 52,978.8 → 61,280.5\n\
         GOOG: 64,409.2 → 70,709.0 → 76,848.5\n"
    );
    assert!(result.text.starts_with("[Script executed successfully]\nAMZN: "), "{}", result.text);
    assert!(result.text.contains("[tool calls: 3; "), "{}", result.text);
    let calls = result.outcome()["tool_calls"].clone();
    assert_eq!(calls.as_array().unwrap().len(), 3);
    assert_eq!(calls[0]["tool"], "mcp__financial_data__query_financials");
    assert_eq!(calls[0]["args"], r#"{"limit": 3, "period": "quarterly", "statement": "income", "ticker": "AMZN"}"#);
    assert_eq!(calls[0]["ok"], true);
}

#[test]
fn fifty_status_checks_run_at_once() {
    let world = world();
    let result = world.session().program(
        r"
import asyncio
results = await asyncio.gather(*(mcp__financial_data__check_status(id=n) for n in range(50)))
bad = [r['id'] for r in results if not r['healthy']]
print(len(results), bad)
",
    );
    assert_eq!(result.output(), "50 [0, 7, 14, 21, 28, 35, 42, 49]\n");
    assert!(result.text.contains("[tool calls: 50; "), "{}", result.text);
}

#[test]
fn a_plain_asyncio_program_makes_six_calls() {
    let world = world();
    let result = world.session().program(
        r#"
import asyncio
from servers import financial_data

async def analyze(ticker):
    name, rows = await asyncio.gather(
        financial_data.company_name(ticker=ticker),
        mcp__financial_data__query_financials(ticker=ticker, limit=2),
    )
    newest, before = (row["revenue"] for row in rows)
    return {"name": name, "growth": round(newest / before - 1, 3)}

async def analyze_companies(tickers):
    return await asyncio.gather(*(analyze(t) for t in tickers))

if __name__ == "__main__":
    emit(asyncio.run(analyze_companies(["AMZN", "MSFT", "GOOG"])))
"#,
    );
    assert!(!result.is_error, "{}", result.text);
    let outcome = result.outcome();
    assert_eq!(
        outcome["result"],
        json!([
            {"name": "Amazon", "growth": 0.118},
            {"name": "Microsoft", "growth": 0.157},
            {"name": "Alphabet", "growth": 0.087},
        ])
    );
    assert_eq!(outcome["tool_calls"].as_array().unwrap().len(), 6);
    assert!(result.text.contains("--- result ---\n[{\"name\": \"Amazon\", \"growth\": 0.118}, "), "{}", result.text);
}
