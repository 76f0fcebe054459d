# The image of every Airflow service of docker-compose.yaml: the official one with Trainyard's wheel and DAGs.
# A release with its digest, such as apache/airflow@sha256:..., may stand in its place: --build-arg AIRFLOW_IMAGE=...
ARG AIRFLOW_IMAGE=apache/airflow:3.3.2-python3.12

FROM python:3.12-slim AS wheel
RUN pip install --no-cache-dir build
WORKDIR /source
COPY pyproject.toml README.md ./
COPY include include
COPY plugins plugins
COPY dags dags
COPY training_scripts training_scripts
RUN python -m build --wheel --outdir /wheel

FROM ${AIRFLOW_IMAGE}
# The image's own version of Airflow is named, so that pip leaves it as it is.
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir "apache-airflow==$(python -c 'import airflow; print(airflow.__version__)')" \
    "trainyard[data,search,deploy] @ file://$(ls /wheel/trainyard-*.whl)"
COPY dags /opt/airflow/dags
