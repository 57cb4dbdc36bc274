import asyncio

async def revenues(ticker):
    rows = await mcp__financial_data__query_financials(
        ticker=ticker, statement="income", period="quarterly", limit=4
    )
    return ticker, [row["revenue"] for row in reversed(rows)]

for ticker, millions in await asyncio.gather(*map(revenues, ["AMZN", "MSFT", "GOOG"])):
    print(f"{ticker}: " + " → ".join(f"${value / 1000:.1f}B" for value in millions))
