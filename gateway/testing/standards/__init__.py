"""Answers and events of the gateway's dialects against the published classes of their standards.

`faults_of(path, content_type, body)` reads the answer to a request at `path` as the classes of its standard do, and
names every member that is missing, wrong or unknown there. The classes come from packages that only tests need:
`openresponses-types` for Responses, `openai` for the other endpoints of OpenAI's API, `anthropic` for Messages, and
`google-genai` for Gemini.
"""

from gateway.testing.standards.answers import faults_of as faults_of
