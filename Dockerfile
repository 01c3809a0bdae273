# The server, and the command line with it: docs/guide/operate.md says how to run it.
# A worker needs your handlers: begin its image with this one and add them.

FROM python:3.13-slim AS build
RUN python -m venv /opt/oncely
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/oncely/bin/pip install --no-cache-dir '.[postgres,server,redis,sqlalchemy,otel]'

FROM python:3.13-slim
RUN groupadd --gid 10001 oncely \
    && useradd --uid 10001 --gid oncely --home-dir /data --no-create-home --shell /usr/sbin/nologin oncely \
    && install --directory --owner oncely --group oncely /data
COPY --from=build /opt/oncely /opt/oncely
ENV PATH=/opt/oncely/bin:$PATH \
    PYTHONUNBUFFERED=1
# Here lies the file of an SQLite store. With PostgreSQL nothing is written.
WORKDIR /data
VOLUME /data
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
# That the process answers, and not the store: no restart here would mend that.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD \
    ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["oncely"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
