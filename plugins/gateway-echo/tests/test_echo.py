"""What a plugin author tests: that the provider conforms, and that it says what it should."""

from importlib.metadata import entry_points

from gateway.testing import ask, check_provider, collect
from gateway_echo import EchoProvider


def test_provider_conforms() -> None:
    check_provider(EchoProvider, options={"delay": 0.001})


def test_last_message_is_streamed_back_word_by_word() -> None:
    answer = collect(EchoProvider, ask("hello small world"))
    assert answer.choices[0].message.content == "hello small world "
    assert answer.choices[0].finish_reason == "stop"


def test_every_choice_gets_an_answer() -> None:
    answer = collect(EchoProvider, ask("hi", fields={"n": 3}))
    assert [choice.message.content for choice in answer.choices] == ["hi "] * 3


def test_gateway_finds_the_plugin_by_its_entry_point() -> None:
    (point,) = entry_points(group="gateway", name="echo")
    assert point.load().EchoProvider is EchoProvider
