"""Where a call goes: the order of targets, attempts and fallbacks, and the circuits that exclude failing targets.

`router` orders a model's targets. `request_adaptation` prepares the request for each of them. `dispatcher` tries them
in the order that `retry_policy` gives, within a `retry_budget`. `circuit_breaker` and `circuit_registry` hold the
circuits, and `circuit_sync` sends their changes to the other workers. `continuation` lets another target finish a cut
text. Start reading at `dispatcher.Dispatcher`.
"""
