"""Chat answers in the dialect of Google's Gemini API."""
