"""`python serve_llamacpp.py MODEL PORT CONTEXT SLOTS [embeddings]`: llama.cpp's own server, until its input ends."""

from __future__ import annotations

import sys

import xllamacpp


def main() -> None:
    """Serve; prints the address once the server answers."""
    model, port, context, slots, *more = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_ctx, params.n_parallel = int(context), int(slots)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.warmup = False
    params.endpoint_props = params.endpoint_slots = params.endpoint_metrics = True
    if "embeddings" in more:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
