"""The side-by-side bench: the gateway and its peers on the same work, on the same pinned cores, in interleaved rounds.

::

    python -m benchmarks                                  # every scenario, every contender found on this machine
    python -m benchmarks json streams --rounds 5 --seconds 5 --contenders gateway,stock,nginx --json bench.json

docs/benchmarks.md says what is measured and how to read it. Needs Linux and a C compiler: the mock upstream and the
load generator are two small C programs, because anything slower would be what is measured. Never part of the tests.
"""
