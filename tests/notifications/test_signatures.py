"""Messages are signed as Standard Webhooks says."""

from __future__ import annotations

import time

import pytest

from gateway.notifications.signatures import BadSecret, new_secret, signed_headers, signing_key
from tests.notifications.receiver import SECRET, verified


@pytest.mark.holds("notifications.md#webhook-2")
def test_signature_is_that_of_the_published_example() -> None:
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330")


@pytest.mark.holds("notifications.md#webhook-4")
def test_message_has_a_signature_by_each_secret_while_one_is_replaced() -> None:
    body, new = b'{"type":"test","timestamp":"","data":{}}', new_secret()
    headers = signed_headers([signing_key(SECRET), signing_key(new)], "msg_1", int(time.time()), body)
    assert verified(headers, body, SECRET) == verified(headers, body, new)
    with pytest.raises(AssertionError):
        verified(headers, body, new_secret())


@pytest.mark.parametrize("text", ["", "hunter2", "whsec_", "whsec_###", "whsec_aGk=", "whsec_" + "A" * 400])
def test_text_that_is_no_secret_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(BadSecret) as caught:
        signing_key(text)
    assert "hunter2" not in str(caught.value)
