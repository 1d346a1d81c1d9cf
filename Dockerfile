# syntax=docker/dockerfile:1
# docker build -t cudal1_ray .                                    for machines without a GPU
# docker build -t cudal1_ray:gpu --build-arg GPU=1 \
#   --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 .       for NVIDIA GPUs; run it with --gpus all
ARG BASE=ubuntu:24.04
# hadolint ignore=DL3006
FROM ${BASE}
ARG GPU=
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# Ubuntu 24.04 has Python 3.12. g++ and ninja build inline extensions, bubblewrap builds the sandbox's root.
# hadolint ignore=DL3008
RUN apt-get update \
  && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    bubblewrap ca-certificates g++ git make ninja-build python3.12 python3.12-dev python3.12-venv \
  && rm -rf /var/lib/apt/lists/*

# The lock alone first: the environment is built anew only when it changes.
WORKDIR /opt/cudal1_ray
COPY requirements requirements
RUN python3.12 -m venv .venv \
  && .venv/bin/python -m pip install --no-cache-dir --quiet --no-deps \
    --requirement "requirements/$([ -n "${GPU}" ] && echo gpu || echo cpu).lock.txt"

COPY . .
RUN .venv/bin/python -m pip install --no-cache-dir --quiet --no-deps --no-build-isolation --editable . \
  && useradd --uid 10001 --create-home cudal1 && mkdir -p /runs && chown cudal1 /runs

USER 10001
ENV HOME=/home/cudal1 PATH=/opt/cudal1_ray/.venv/bin:${PATH}
WORKDIR /runs
ENTRYPOINT ["cudal1"]
CMD ["--help"]
