"""Instructions of a warm request and of a stream's chunk, in all and by stage: `python -m benchmarks instructions`.

A real worker runs under `valgrind --tool=callgrind`, which counts every instruction that the process itself executes
(not the kernel's). The same work gives nearly the same count on a busy machine, so a small change shows.
"""
