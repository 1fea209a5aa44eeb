"""Who is measured: each contender is one small class in one file that starts its server and says how to reach it."""

from __future__ import annotations

from benchmarks.contenders.contender import Contender, Place, Running
from benchmarks.contenders.direct import Direct
from benchmarks.contenders.gateway import Gateway, GatewayAt
from benchmarks.contenders.litellm import LiteLLM
from benchmarks.contenders.nginx import Nginx
from benchmarks.contenders.portkey import Portkey
from benchmarks.contenders.stock import Stock

__all__ = ["Contender", "Place", "Running", "all_contenders"]


def all_contenders(*, at: str = "", litellm: str = "", portkey: str = "") -> list[Contender]:
    """Every contender in the order of the tables, present on this machine or not."""
    return [Direct(), Gateway(), GatewayAt(at), Stock(), Nginx(), LiteLLM(litellm), Portkey(portkey)]
