# The server and the client's tools, as a user that owns nothing but the data folder.
#
#   docker build -t turnlog .
#   docker run -p 127.0.0.1:7777:7777 -v turnlog:/var/lib/turnlog turnlog dev --listen 0.0.0.0:7777 --insecure
#
# BASE is any image with Python 3.11 or later and its venv module. For a package index of your own, give pip's
# configuration, and the certificate that it names as /run/secrets/ca, as secrets; neither stays in the image:
#
#   docker build --secret id=pip,src=pip.conf --secret id=ca,src=ca.pem -t turnlog .

ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY server server
COPY clients/python clients/python
COPY proto/gen proto/gen
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    python3 -m venv /opt/turnlog \
    && /opt/turnlog/bin/pip install --no-cache-dir '.[server]' \
    && /opt/turnlog/bin/pip uninstall --yes pip

FROM ${BASE}
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="Turnlog" \
    org.opencontainers.image.description="A durable control plane for AI agent sessions" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
RUN useradd --uid 10001 --no-log-init --home-dir /var/lib/turnlog --no-create-home --shell /usr/sbin/nologin turnlog \
    && install --directory --owner=turnlog --group=turnlog --mode=0700 /var/lib/turnlog
COPY --from=build /opt/turnlog /opt/turnlog
USER 10001
WORKDIR /var/lib/turnlog
VOLUME /var/lib/turnlog
ENV PATH=/opt/turnlog/bin:$PATH \
    TURNLOG_DATA_DIR=/var/lib/turnlog \
    TURNLOG_LISTEN=0.0.0.0:7777 \
    TURNLOG_METRICS_LISTEN=0.0.0.0:9464 \
    TURNLOG_LOG_FORMAT=json
EXPOSE 7777 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["turnlog-server", "healthcheck"]
# SIGTERM drains; see drain_grace_seconds.
STOPSIGNAL SIGTERM
ENTRYPOINT ["turnlog-server"]
CMD ["serve"]
