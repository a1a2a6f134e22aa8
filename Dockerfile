# visvm serve, in a container:
#
#   docker build --tag visvm .
#   docker run --publish 127.0.0.1:8000:8000 --volume visvm:/data --env VISVM_TOKEN visvm
#
# The model is /data/model.visvm; weights and features are kept beside it. A new model fetches its encoder at the first start.
FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN pip wheel --no-cache-dir --constraint constraints.txt --wheel-dir /wheels '.[serve,heic]'

FROM python:3.13-slim-bookworm
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 VISVM_CACHE=/data/cache
# pip stays: it downloads weights. The version is that of the wheel built above.
# hadolint ignore=DL3013
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-index --find-links /wheels 'visvm[serve,heic]' \
    && useradd --uid 10001 --create-home visvm \
    && install --directory --owner visvm --group visvm /data
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
# /api/health asks for no token
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/api/health', timeout=4)"]
ENTRYPOINT ["visvm", "serve"]
CMD ["/data/model.visvm", "--host", "0.0.0.0", "--port", "8000"]
