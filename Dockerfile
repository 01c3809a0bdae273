# The server, and the command line with it: docs/guide/operate.md says how to run it.
# A worker needs your handlers: begin its image with this one and add them.

# Images are pinned by digest, and packages by the hashes of their files: what was tried is what runs.

FROM python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
RUN python -m venv /opt/oncely
WORKDIR /build
COPY deploy/requirements.txt deploy/requirements-build.txt ./
RUN /opt/oncely/bin/pip install --no-cache-dir --require-hashes --requirement requirements.txt \
    && pip install --no-cache-dir --require-hashes --requirement requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/oncely/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
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
