"""Each agent changes a file through the gateway, whatever API its model has, and each of its calls is charged once."""

from __future__ import annotations

import pytest

from .conftest import UPSTREAMS, Rig
from .programs import AGENTS, Agent, step

TURNS = 10

every_agent = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
every_upstream = pytest.mark.parametrize("api", UPSTREAMS)


@every_upstream
@every_agent
def test_agent_edits_a_file(rig: Rig, agent: Agent, api: str) -> None:
    place = rig.place(api)
    notes = place.work / "notes.txt"
    notes.write_text("old\n", encoding="utf-8")
    rig.turn(agent, place, step(agent, "old", "new"), ("say", "Done."))
    assert notes.read_text(encoding="utf-8") == "new\n"
    assert {one.api for one in rig.answers()} == {api}
    rig.check_charges()


@every_upstream
@every_agent
def test_agent_goes_on_after_a_command_that_failed(rig: Rig, agent: Agent, api: str) -> None:
    place = rig.place(api)
    notes = place.work / "notes.txt"
    notes.write_text("one\n", encoding="utf-8")
    steps = [step(agent, "one", "two"), step(agent, "two", "three"), ("say", "Done.")]
    if agent.name == "aider":  # it runs this command after each change, and tells the model that it failed
        (place.work / "check.sh").write_text("grep -q three notes.txt\n", encoding="utf-8")
    else:
        steps.insert(1, ("shell", "ls /no/such/folder"))
    rig.turn(agent, place, *steps)
    assert notes.read_text(encoding="utf-8") == "three\n"
    rig.check_charges()


@every_upstream
@every_agent
def test_session_of_ten_turns_changes_the_file_ten_times(rig: Rig, agent: Agent, api: str) -> None:
    place = rig.place(api)
    notes = place.work / "notes.txt"
    notes.write_text("0\n", encoding="utf-8")
    for turn in range(TURNS):
        rig.turn(agent, place, step(agent, str(turn), str(turn + 1)), ("say", "Done."), is_first=turn == 0)
        assert notes.read_text(encoding="utf-8") == f"{turn + 1}\n"
    lengths = [len(one.conversation.turns) for one in rig.answers() if one.reply.tool or agent.name == "aider"]
    assert lengths == sorted(lengths), "a later turn has forgotten an earlier one"
    rig.check_charges()
