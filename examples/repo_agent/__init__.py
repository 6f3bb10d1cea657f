"""An agent without a model: it answers questions about a source tree by searching and reading it."""
