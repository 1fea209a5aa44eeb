"""The built-in providers, installed as `gateway_providers`: one package or module per upstream dialect.

They are plugins like anyone's: they import public names of `gateway` only, and the engine finds them by name.
`upstream_errors` is shared by every dialect over HTTP: it turns what an upstream calls an error into a typed one.
"""
