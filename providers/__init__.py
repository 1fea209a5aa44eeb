"""The built-in providers, installed as `gateway_providers`: one package or module per upstream dialect.

They are plugins like anyone's: they import public names of `gateway` only, and the engine finds them by name.
What an upstream calls an error becomes a typed one in `gateway.plugins.upstream_errors`, where plugins find it too.
"""
