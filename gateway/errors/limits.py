"""Errors of a caller that has reached a limit: 429, with the time to wait, or none if no wait helps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.errors.base import GatewayError


class TooManyRequests(GatewayError):
    """A limit is reached; the request used up nothing."""

    status = 429
    type = "requests"
    default_code = "rate_limit_exceeded"
    default_message = "Rate limit reached"
    should_retry = True
    rate_headers: Mapping[str, str] = MappingProxyType({})  # the x-ratelimit headers of the limit

    def headers(self) -> dict[str, str]:
        return {**super().headers(), **self.rate_headers}


class RequestRateLimited(TooManyRequests):
    """The limit of requests per minute is reached."""

    default_message = "Rate limit reached for requests"
    limit = "rpm"


class TokenRateLimited(TooManyRequests):
    """The limit of tokens per minute is reached."""

    type = "tokens"
    default_message = "Rate limit reached for tokens"
    limit = "tpm"


class ConcurrencyLimited(TooManyRequests):
    """Too many requests run at the same time."""

    default_code = "concurrency_limit_exceeded"
    default_message = "Too many requests at the same time"
    limit = "concurrency"
    default_wait = 1.0


class QuotaExhausted(TooManyRequests):
    """The money does not suffice. SDKs retry other 429 answers, so the headers of this one forbid it."""

    type = "insufficient_quota"
    default_code = "credit_balance_exhausted"
    default_message = "The account balance does not cover this request"
    should_retry = False


class BalanceExhausted(QuotaExhausted):
    """The account's balance does not cover the hold."""

    limit = "balance"
    scope = "account"


class SpendLimitExceeded(QuotaExhausted):
    """The spend limit of the account or of the group is reached."""

    default_code = "organization_spend_limit_exceeded"
    default_message = "The account's spend limit is reached"
    limit = "spend"
    scope = "account"


class BudgetExceeded(QuotaExhausted):
    """The budget of the key is reached."""

    default_code = "project_spend_limit_exceeded"
    default_message = "The key's budget is reached"
    limit = "budget"
    scope = "key"


class MemberBudgetExceeded(QuotaExhausted):
    """The budget of the key's user over all their keys is reached."""

    default_code = "project_spend_limit_exceeded"
    default_message = "The budget of the key's user in this account is reached"
    limit = "budget"
    scope = "member"


class BatchBudgetExceeded(QuotaExhausted):
    """The rest of a batch's `max_cost` does not cover a line of it."""

    default_code = "batch_budget_exceeded"
    default_message = "The max_cost of this batch does not cover this request"
    limit = "budget"
    scope = "batch"


class SessionBudgetExceeded(QuotaExhausted):
    """The budget of the call's session is reached."""

    default_code = "session_budget_exceeded"
    default_message = "The budget of this session is reached"
    limit = "budget"
    scope = "session"
