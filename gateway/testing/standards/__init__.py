"""Answers and events of the gateway's dialects against the published classes of their standards.

`faults_of(path, content_type, body)` reads the answer to a request at `path` as the classes of its standard do, and
names every member that is missing, wrong or unknown there; `read_answer` also counts the events, `read_message` reads
one message of a WebSocket, and `read_error` the body of an error. The classes come from packages that only tests need,
those of the extra `conformance`: `openresponses-types` for Responses, `openai` for the other endpoints of OpenAI's API,
`anthropic` for Messages, and `google-genai` for Gemini.
"""

from gateway.testing.standards.answers import Reading as Reading
from gateway.testing.standards.answers import faults_of as faults_of
from gateway.testing.standards.answers import read_answer as read_answer
from gateway.testing.standards.answers import read_error as read_error
from gateway.testing.standards.answers import read_message as read_message
