"""Signing in by an identity provider: OpenID Connect, authorization code flow with PKCE.

::

    begin   →  flow in the store, cookie in the browser, address at the provider
    finish  ←  code  →  ID token, checked  →  user by (issuer, subject), else by verified e-mail, else a new one

`provider` and below know the protocol, `sign_in` knows users. joserfc is imported when a provider is first used.
"""
