# One image for the driver, the head and every worker. On PyPI's Linux wheels torch brings its own CUDA libraries, so the
# host needs only the NVIDIA driver and container toolkit; there is no CUDA base image to keep in step.
FROM python:3.11-slim

# KubeRay's health probes call wget.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 fairwitness \
    && mkdir -p /opt/fairwitness \
    && chown fairwitness /opt/fairwitness
WORKDIR /opt/fairwitness
USER fairwitness

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    VIRTUAL_ENV=/opt/fairwitness/.venv \
    PATH=/opt/fairwitness/.venv/bin:$PATH \
    RAY_USAGE_STATS_ENABLED=0 \
    MLFLOW_DISABLE_TELEMETRY=true \
    TOKENIZERS_PARALLELISM=false

# The dependencies are a layer of their own: a change of the sources does not install them again.
COPY --chown=fairwitness constraints.txt requirements-hashed.txt pyproject.toml README.md LICENSE ./
COPY --chown=fairwitness platform/fairwitness/__init__.py platform/fairwitness/version.py platform/fairwitness/
COPY --chown=fairwitness jobs/configs jobs/configs
COPY --chown=fairwitness schemas/fairwitness_schemas/__init__.py schemas/fairwitness_schemas/__init__.py
RUN python -m venv .venv \
    && pip install --require-hashes --no-deps -r requirements-hashed.txt \
    && pip install -c constraints.txt hatchling editables \
    && pip install -c constraints.txt --no-build-isolation -e .

COPY --chown=fairwitness . .

# A head or a worker replaces this by `ray start …`; KubeRay does so by itself.
CMD ["python", "jobs/fur_sweep.py", "--config", "jobs/configs/demo.yaml"]
