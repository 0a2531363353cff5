# The server on a CPU: docker build -t trellm . && docker run -p 8000:8000 trellm [MODEL] [OPTIONS]
FROM python:3.12-slim

# Of torch the build for CPUs: the other one brings gigabytes of CUDA.
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch>=2.6,<2.14"
COPY . /src
RUN pip install --no-cache-dir "/src[serve,gguf]" && rm -rf /src \
    && useradd --create-home --uid 1000 trellm && mkdir -p /home/trellm/.cache && chown trellm /home/trellm/.cache

USER 1000
WORKDIR /home/trellm
# Kernels are compiled for the machine that builds the image; on another kind they are compiled once more, by the first start.
RUN trellm warmup
VOLUME /home/trellm/.cache
EXPOSE 8000
HEALTHCHECK --start-period=2m CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health/ready', timeout=5)"]
# Names by which a container is asked for are whatever its network says; who may reach it is said where it is published.
ENTRYPOINT ["trellm", "serve", "--host", "0.0.0.0"]
