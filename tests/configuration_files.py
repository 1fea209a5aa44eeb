"""Texts of configuration files that several tests use."""

#: OpenAI with a variable of its own, so that the usual one is not in use.
OWN_KEY = """
[providers.openai]
plugin = "openai"
api_key = "env:MY_KEY"

[models.gpt-5]
provider = "openai"
price = "openai/gpt-5"
"""
