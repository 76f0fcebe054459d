"""Live view of a run: the content of its page in Airflow while it trains. Pure; the plugin calls AWS."""
