"""Images and audio of requests: read from data URLs, and from the web if the operator allows it."""
