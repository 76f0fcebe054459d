# One image for every service of docker-compose.yaml: Airflow with Trainyard's DAGs, and the engine.
# The wheels are built apart: AWS's container toolkit has a small C extension and comes as source only.
FROM python:3.11-slim AS wheels
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
# pip's settings hold here too: --build-arg PIP_EXTRA_INDEX_URL=... picks a CPU build of torch, for example.
ARG PIP_EXTRA_INDEX_URL=""
COPY requirements.txt .
RUN pip install --no-cache-dir --prefix /installed --requirement requirements.txt

FROM python:3.11-slim
# iproute2 lets the engine give each local instance its own network.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends iproute2 tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 50000 airflow
COPY --from=wheels /installed /usr/local

WORKDIR /opt/trainyard
COPY include include
COPY plugins plugins
COPY dags dags
COPY training_scripts training_scripts
# The pins of the engine images, which the engine builds into TRAINYARD_IMAGES.
COPY images images
RUN mkdir -p /opt/airflow/logs /var/lib/trainyard && chown -R airflow /opt/airflow /var/lib/trainyard

USER airflow
ENV PYTHONUNBUFFERED=1 \
    PYTHONPATH=/opt/trainyard/include \
    AIRFLOW_HOME=/opt/airflow
# Signals go to the service alone: Celery lets its running tasks finish, which a signal to the whole group would end.
ENTRYPOINT ["tini", "--"]
CMD ["airflow", "version"]
