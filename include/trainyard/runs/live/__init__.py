"""Live view of a run: what the pages in Airflow show of it while it trains. Pure; the AWS side is in the plugin."""
