"""Where a call goes: the order of targets, attempts and fallbacks, and who is left alone for a while.

`router` orders a model's targets, `fitting` gives each the request as it will see it, `dispatch` walks them by the
order of `succession` within a `retry_budget`, `circuit` and `health` know which places are sick and `circuit_sync`
tells the other workers, `continuation` lets another target finish a cut text. Start reading at `dispatch.Dispatcher`.
"""
