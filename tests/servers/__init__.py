"""The gateway before a real model server: llama.cpp's own, with a model of random weights. `tox -e servers`."""
