"""The errors about people: signing in, links, invitations, users and admin tokens."""

from __future__ import annotations

from gateway.errors.base import GatewayError


class PeopleError(GatewayError):
    """A change of users, members, invitations or tokens is not possible, or a person cannot sign in."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_value"
    default_message = "This is not possible"


class NotSignedIn(PeopleError):
    """There is no valid session, or no valid admin token."""

    status = 401
    default_code = "not_signed_in"
    default_message = "Missing or invalid session or admin token"


class SignInFailed(NotSignedIn):
    """The e-mail, the password or the code is wrong; one answer for all of them hides which users exist."""

    default_code = "sign_in_failed"
    default_message = "E-mail, password or code are wrong"


class SignInLimited(PeopleError):
    """Too many attempts to sign in for this e-mail or from this address."""

    status = 429
    type = "requests"
    default_code = "too_many_attempts"
    default_message = "Too many attempts to sign in; try again later"
    should_retry = False


class SignInRefused(PeopleError):
    """A sign-in by an identity provider is refused; `detail` is the reason in one word, for the log and the trail."""

    status = 403
    default_code = "sign_in_refused"
    default_message = "This sign-in was not possible. Begin again on the sign-in page"
    should_retry = False


class IdentityProviderUnavailable(PeopleError):
    """An identity provider does not answer, or its answer cannot be used."""

    status = 503
    type = "service_unavailable_error"
    default_code = "identity_provider_unavailable"
    default_message = "The sign-in service does not answer as it should. Try again later, or sign in another way"


class InvalidLink(PeopleError):
    """A link or an invitation is unknown, expired or used."""

    status = 404
    default_code = "invalid_link"
    default_message = "This link is not valid any more"


class SignInToAccept(PeopleError):
    """The invitation is for somebody who is a user already: they accept it while they are signed in."""

    status = 403
    default_code = "sign_in_to_accept"
    default_message = "The invited person is a user here already. Sign in as this user, then open the invitation again"
    should_retry = False


class AddressNotProved(PeopleError):
    """The e-mail address of a user is not proved, so a role is not given by it."""

    status = 409
    default_code = "address_not_proved"
    default_message = (
        "The e-mail address of this user is not proved, and a person may already sign in as this user: "
        "invite the person, or mark the user as proved"
    )
    should_retry = False


class AddressChanged(PeopleError):
    """The e-mail address of a user is not the one that the caller decided about."""

    status = 409
    default_code = "address_changed"
    default_message = (
        "The e-mail address of this user was changed meanwhile: look at the present address, and decide again"
    )
    should_retry = False


class AlreadyExists(PeopleError):
    """There is one of this name or e-mail already."""

    status = 409
    default_code = "already_exists"
    default_message = "This exists already"
    should_retry = False


class LastOperator(PeopleError):
    """The last operator who is not disabled would be erased, disabled or demoted, or lose the connection behind it."""

    status = 409
    default_code = "last_operator"
    default_message = "This is the last operator; make another one first"
    should_retry = False
