# A Docker Space of the service and its page, for every head. The Space holds this file as Dockerfile, a wheel of the
# project (make release writes it to dist/), the folder of the model as model/, and a README.md that begins with
#     ---
#     title: My model
#     sdk: docker
#     app_port: 8000
#     ---
FROM python:3.12.11-slim-bookworm
RUN useradd --uid 1000 --create-home user
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch==2.13.0
COPY *.whl /tmp/
RUN for wheel in /tmp/*.whl; do pip install --no-cache-dir "$wheel[deploy]"; done
COPY model /model
USER 1000
ENV HF_HUB_OFFLINE=1 HF_HOME=/tmp/huggingface
EXPOSE 8000
CMD ["bert-repro", "serve", "/model", "--host", "0.0.0.0"]
