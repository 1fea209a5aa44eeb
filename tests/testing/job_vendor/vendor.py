"""A fake of the vendor's server, with what its answers depend on: tokens, uploads and jobs."""

from __future__ import annotations

from gateway.testing import Reply, Seen

KEY = "sk-of-the-vendor-0123456789"


class Vendor:
    """The vendor's answers, for `FakeUpstream(Vendor().answer)`."""

    def __init__(self, *, expires_in: float = 3600.0) -> None:
        self.expires_in = expires_in  # seconds
        self.tokens: list[str] = []  # given so far; only the last one is valid
        self.uploads: list[Seen] = []
        self.jobs: list[dict[str, object]] = []
        self.cancelled: list[str] = []  # ids of jobs

    def answer(self, seen: Seen) -> Reply:
        """The answer to one request."""
        if (seen.method, seen.path) == ("POST", "/sign-in"):
            return self._sign_in(seen)
        if not self.tokens or seen.headers.get("authorization") != f"Bearer {self.tokens[-1]}":
            return Reply.error(401, "the token is not valid")
        match seen.method, seen.path.strip("/").split("/"):
            case "POST", ["files"]:
                self.uploads.append(seen)
                return Reply.json({"id": f"file-{len(self.uploads)}"}, status=201)
            case "POST", ["jobs"]:
                self.jobs.append(seen.json)
                return Reply.json({"id": f"job-{len(self.jobs)}"}, status=202)
            case "GET", ["jobs", job, "events"]:
                return self._events(job)
            case "DELETE", ["jobs", job]:
                self.cancelled.append(job)
                return Reply(status=204)
        return Reply.error(404, f"no such path: {seen.path}")

    def revoke(self) -> None:
        """End the token before its time."""
        self.tokens.append("unknown to everybody")

    def _sign_in(self, seen: Seen) -> Reply:
        if seen.json != {"key": KEY}:
            return Reply.error(400, "the key is not valid")
        self.tokens.append(f"token-{len(self.tokens)}")
        return Reply.json({"token": self.tokens[-1], "expires_in": self.expires_in}, status=201)

    def _events(self, job: str) -> Reply:
        asked = self.jobs[int(job.removeprefix("job-")) - 1]
        words = str(asked["prompt"]).split()
        events = [{"event": "queued"}, *({"event": "text", "text": f"{word} "} for word in words)]
        end = {"event": "done", "reason": "complete", "tokens": {"read": 5, "written": len(words)}}
        return Reply.lines([*events, end])
