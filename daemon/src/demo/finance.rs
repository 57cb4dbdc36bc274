//! The demo's figures: made up by a formula, the same at each run.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// Ticker, revenue of the newest quarter in millions, growth per quarter in tenths of a percent.
const COMPANIES: &[(&str, i64, i64)] = &[
    ("AAPL", 98_400, 14),
    ("AMZN", 158_900, 26),
    ("GOOG", 88_300, 31),
    ("META", 40_600, 42),
    ("MSFT", 65_600, 35),
    ("NVDA", 35_100, 118),
];

/// Newest quarter the figures cover: year and quarter.
const NEWEST: (i64, i64) = (2025, 3);

/// Most periods one answer holds.
const MAX_PERIODS: i64 = 40;

/// Line items of each statement with their share of revenue in thousandths.
const INCOME: &[(&str, i64)] = &[
    ("cost_of_revenue", 512),
    ("gross_profit", 488),
    ("research_and_development", 121),
    ("sales_and_marketing", 74),
    ("general_and_administrative", 28),
    ("operating_income", 265),
    ("interest_expense", 6),
    ("other_income", 9),
    ("income_before_tax", 268),
    ("income_tax", 49),
    ("net_income", 219),
    ("ebitda", 341),
];
const BALANCE: &[(&str, i64)] = &[
    ("cash", 640),
    ("short_term_investments", 410),
    ("receivables", 355),
    ("inventory", 121),
    ("total_assets", 3_900),
    ("accounts_payable", 402),
    ("long_term_debt", 890),
    ("total_liabilities", 2_050),
    ("equity", 1_850),
];
const CASH_FLOW: &[(&str, i64)] = &[
    ("operating_cash_flow", 310),
    ("capital_expenditure", -142),
    ("free_cash_flow", 168),
    ("dividends", -31),
    ("share_repurchases", -88),
    ("net_change_in_cash", 22),
];

/// JSON schema of the arguments.
pub(super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "ticker": {"type": "string", "description": "Stock symbol, such as MSFT"},
            "statement": {"type": "string", "enum": ["income", "balance", "cash_flow"], "default": "income"},
            "period": {"type": "string", "enum": ["quarterly", "annual"], "default": "quarterly"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_PERIODS, "default": 4, "description": "Number of periods"},
        },
        "required": ["ticker"],
        "additionalProperties": false,
    })
}

/// JSON schema of the result: rows under `result`, amounts in millions of dollars.
pub(super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"result": {"type": "array", "items": {
            "type": "object",
            "properties": {
                "ticker": {"type": "string"}, "period": {"type": "string"}, "statement": {"type": "string"},
                "currency": {"type": "string"}, "revenue": {"type": "integer"},
            },
            "required": ["ticker", "period", "statement", "currency", "revenue"],
        }}},
        "required": ["result"],
    })
}

/// Rows for the arguments, newest first.
///
/// # Errors
/// A sentence for the model when an argument is missing or not one of the valid values.
pub(super) fn query(arguments: &JsonObject) -> Result<Vec<Value>, String> {
    let text = |key: &str, default: &str| arguments.get(key).and_then(Value::as_str).unwrap_or(default).to_owned();
    let ticker = text("ticker", "").to_uppercase();
    let Some((_, newest, growth)) = COMPANIES.iter().find(|(name, ..)| *name == ticker) else {
        let known: Vec<_> = COMPANIES.iter().map(|(name, ..)| *name).collect();
        return Err(format!("unknown ticker `{ticker}`; known: {}", known.join(", ")));
    };
    let statement = text("statement", "income");
    let items = match statement.as_str() {
        "income" => INCOME,
        "balance" => BALANCE,
        "cash_flow" => CASH_FLOW,
        other => return Err(format!("unknown statement `{other}`; valid: income, balance, cash_flow")),
    };
    let limit = arguments.get("limit").map_or(Some(4), Value::as_i64).filter(|n| (1..=MAX_PERIODS).contains(n));
    let limit = limit.ok_or_else(|| format!("limit must be a whole number from 1 to {MAX_PERIODS}"))?;
    let annual = match text("period", "quarterly").as_str() {
        "quarterly" => false,
        "annual" => true,
        other => return Err(format!("unknown period `{other}`; valid: quarterly, annual")),
    };
    Ok((0..limit)
        .map(|back| {
            let (label, revenue) = if annual {
                let year = NEWEST.0 - 1 - back;
                let first = (NEWEST.0 - year) * 4 + NEWEST.1 - 4;
                (format!("{year}-FY"), (first..first + 4).map(|at| revenue(*newest, *growth, at)).sum())
            } else {
                let quarter = NEWEST.0 * 4 + NEWEST.1 - 1 - back;
                (format!("{}-Q{}", quarter / 4, quarter % 4 + 1), revenue(*newest, *growth, back))
            };
            let mut row = json!({
                "ticker": ticker, "period": label, "statement": statement, "currency": "USD", "unit": "millions", "revenue": revenue,
            });
            for (item, thousandths) in items {
                row[*item] = json!(revenue * thousandths / 1000);
            }
            row
        })
        .collect())
}

/// Revenue `back` quarters before the newest, with a little seasonal swing.
fn revenue(newest: i64, growth: i64, back: i64) -> i64 {
    let mut value = newest;
    for _ in 0..back {
        value = value * 1000 / (1000 + growth);
    }
    value * [1000, 985, 962, 1041].get(usize::try_from(back % 4).unwrap_or(0)).copied().unwrap_or(1000) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(value: Value) -> JsonObject {
        super::super::object(value)
    }

    #[test]
    fn quarters_count_back_from_the_newest() {
        let rows = query(&arguments(json!({"ticker": "msft", "limit": 5}))).unwrap();
        let periods: Vec<_> = rows.iter().map(|row| row["period"].as_str().unwrap()).collect();
        assert_eq!(periods, ["2025-Q3", "2025-Q2", "2025-Q1", "2024-Q4", "2024-Q3"]);
        assert_eq!(rows[0]["revenue"], 65_600);
    }

    #[test]
    fn a_year_is_the_sum_of_its_quarters() {
        let year = &query(&arguments(json!({"ticker": "GOOG", "period": "annual", "limit": 1}))).unwrap()[0];
        let quarters = query(&arguments(json!({"ticker": "GOOG", "limit": 7}))).unwrap();
        let sum: i64 = quarters[3..].iter().map(|row| row["revenue"].as_i64().unwrap()).sum();
        assert_eq!((year["period"].as_str().unwrap(), year["revenue"].as_i64().unwrap()), ("2024-FY", sum));
    }

    #[test]
    fn a_wrong_argument_names_the_valid_values() {
        assert!(query(&arguments(json!({"ticker": "X"}))).unwrap_err().contains("AMZN"));
        assert!(query(&arguments(json!({"ticker": "AMZN", "limit": 0}))).unwrap_err().contains("1 to 40"));
    }
}
