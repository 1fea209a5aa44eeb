"""Real coding agents against the gateway, over scripted models: `tox -e agents` installs and runs them."""
