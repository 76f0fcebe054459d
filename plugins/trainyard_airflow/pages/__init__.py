"""Pages in Airflow's UI: the training tab of a run and the fleet page. They run in Airflow's API server.

airflow_runs    runs, tasks and results from Airflow's database
training_feed   jobs and log of a running training, from AWS
app             the FastAPI app: permissions and addresses
static          the built page; its sources are in `frontend/` (docs/pages.md)
"""
