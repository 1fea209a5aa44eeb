"""Forms with a file in them: read as they arrive (`form`), kept on disk (`spool`), and the audio in them (`upload`)."""
