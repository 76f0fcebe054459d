# One image for every service of docker-compose.yaml: Airflow with Trainyard's DAGs, and the engine.
FROM python:3.12-slim

# iproute2 lets the engine give each local instance its own network; libpq is in psycopg2-binary.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends iproute2 tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 50000 airflow

WORKDIR /opt/trainyard
COPY requirements.txt .
# A CPU build of torch: docker build --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu .
ARG PIP_EXTRA_INDEX_URL=""
RUN pip install --no-cache-dir --requirement requirements.txt

COPY include include
COPY plugins plugins
COPY dags dags
COPY training_scripts training_scripts
RUN mkdir -p /opt/airflow/logs /var/lib/trainyard && chown -R airflow /opt/airflow /var/lib/trainyard

USER airflow
ENV PYTHONUNBUFFERED=1 \
    PYTHONPATH=/opt/trainyard \
    AIRFLOW_HOME=/opt/airflow
ENTRYPOINT ["tini", "-g", "--"]
CMD ["airflow", "version"]
