"""The second factor: codes of an app that change every 30 seconds (TOTP, RFC 6238). Each code works once."""

from __future__ import annotations

import hmac
import re
import time

import pyotp
import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.current_rights import issuer_of
from gateway.admin.granted import entered_by
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, lock_user, user_by_id
from gateway.database.people_tables import users
from gateway.errors import Forbidden, InvalidValue, SignInFailed
from gateway.log import gateway_log
from gateway.people.secret_box import SealedError, SecretBox
from gateway.people.sign_in_limits import SignInLimits

ISSUER = "model-gateway"
STEP = 30  # seconds
TOLERATED = 1  # steps that a phone's clock may be off
_SECRET = re.compile(r"[A-Z2-7]{32}", re.ASCII)


class NewSecret(Struct, frozen=True):
    """A secret for the app, not yet in use; `uri` is for a QR code."""

    secret: str
    uri: str

    def __repr__(self) -> str:
        return "NewSecret(secret='***', uri='***')"


class SecondFactor:
    """A user's own second factor."""

    def __init__(self, transactions: Transactions, limits: SignInLimits, box: SecretBox) -> None:
        self._transactions = transactions
        self._limits = limits
        self._box = box

    def propose(self, user: User, *, secret: str = "") -> NewSecret:
        """A new secret, or again the one of before; `enable` takes it with a code, so that the app is known to work."""
        secret = secret if _SECRET.fullmatch(secret) else pyotp.random_base32()
        return NewSecret(secret, pyotp.TOTP(secret).provisioning_uri(name=user.email, issuer_name=ISSUER))

    async def enable(self, actor: Actor, secret: str, code: str) -> User:
        """Ask for codes from now on; InvalidValue if the code is not of this secret.

        Forbidden in a session in which not all roles of the user count: somebody else may have it than the person whom
        the provider knows, who would be asked for the code.
        """
        _require_user(actor)
        step = matching_step(secret, code) if len(secret) >= 32 else None
        if step is None:
            raise InvalidValue("The code is wrong", param="code")
        return await self._transactions.write_as(actor, _enable, self._box.seal(secret, actor.id), step)

    async def disable(self, actor: Actor, code: str) -> User:
        """Ask for no codes any more; SignInFailed for a wrong code."""
        _require_user(actor)
        await self._limits.attempt(actor.id, "")
        return await self._transactions.write_as(actor, _disable, self._box, code)


def matching_step(secret: str, code: str, *, at: float | None = None) -> int | None:
    """The number of the step that the code belongs to, near this moment; None for a wrong code."""
    code = code.replace(" ", "")
    if len(code) != 6 or not (code.isascii() and code.isdigit()):
        return None
    try:
        totp, now = pyotp.TOTP(secret), int((time.time() if at is None else at) // STEP)
        steps = range(now - TOLERATED, now + TOLERATED + 1)
        return next((step for step in steps if hmac.compare_digest(totp.at(step * STEP), code)), None)
    except ValueError:  # of a secret that is not base32
        return None


def use_code(connection: Connection, box: SecretBox, user_id: str, code: str) -> None:
    """Check a code and remember its step, so that it does not work again; SignInFailed for a wrong one.

    A secret that is not encrypted with the current pepper is encrypted with it.
    """
    stored = connection.scalar(sa.select(users.c.totp_secret).where(users.c.id == user_id))
    if stored is None:
        raise SignInFailed
    try:
        secret, is_current = box.open(stored, user_id)
    except SealedError:
        gateway_log.error("the second factor of %s cannot be decrypted: another pepper encrypted it", user_id)
        raise SignInFailed from None
    step = matching_step(secret, code)
    if step is None:
        raise SignInFailed
    unused = sa.or_(users.c.totp_step.is_(None), users.c.totp_step < step)
    update = users.update().where(users.c.id == user_id, users.c.totp_secret == stored, unused)
    values = {"totp_step": step} | ({} if is_current else {"totp_secret": box.seal(secret, user_id)})
    if connection.execute(update.values(values)).rowcount != 1:
        raise SignInFailed


def _enable(connection: Connection, actor: Actor, sealed: str, step: int) -> User:
    user = lock_user(connection, actor.id)
    if user.has_second_factor:
        raise InvalidValue("There is a second factor already")
    if entered_by(connection, user, issuer_of(connection, actor)) != user:
        raise Forbidden("A sign-in service gives you roles that do not count here: sign in there to set up codes")
    values = {"totp_secret": sealed, "totp_step": step}
    connection.execute(users.update().where(users.c.id == actor.id).values(values))
    return _recorded(connection, actor, after=True)


def _disable(connection: Connection, actor: Actor, box: SecretBox, code: str) -> User:
    use_code(connection, box, actor.id, code)
    values = {"totp_secret": None, "totp_step": None}
    connection.execute(users.update().where(users.c.id == actor.id).values(values))
    return _recorded(connection, actor, after=False)


def _recorded(connection: Connection, actor: Actor, *, after: bool) -> User:
    sides = {"before": {"has_second_factor": not after}, "after": {"has_second_factor": after}}
    record(connection, actor, "users.edit", f"user:{actor.id}", **sides)
    return user_by_id(connection, actor.id)


def _require_user(actor: Actor) -> None:
    if actor.kind != "user":
        raise Forbidden("Only users have a second factor of their own")
