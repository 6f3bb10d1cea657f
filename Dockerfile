# The server and the client's tools, as a user that owns nothing but the data folder.
#
#   docker build -t turnlog .
#   docker run -p 127.0.0.1:7777:7777 -v turnlog:/var/lib/turnlog turnlog dev --listen 0.0.0.0:7777 --insecure

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY server server
COPY clients/python clients/python
COPY proto/gen proto/gen
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[server]'

FROM python:3.12-slim
# hadolint ignore=DL3013  # whatever versions the stage above found
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links=/wheels 'turnlog[server]' \
    && useradd --system --uid 10001 --home-dir /var/lib/turnlog --create-home turnlog \
    && chmod 0700 /var/lib/turnlog
USER 10001
WORKDIR /var/lib/turnlog
VOLUME /var/lib/turnlog
ENV TURNLOG_DATA_DIR=/var/lib/turnlog \
    TURNLOG_LISTEN=0.0.0.0:7777 \
    TURNLOG_METRICS_LISTEN=0.0.0.0:9464 \
    TURNLOG_LOG_FORMAT=json
EXPOSE 7777 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["turnlog-server", "healthcheck"]
# SIGTERM drains; see drain_grace_seconds.
STOPSIGNAL SIGTERM
ENTRYPOINT ["turnlog-server"]
CMD ["serve"]
