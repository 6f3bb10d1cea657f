"""A small job queue on SQLite."""

from .job import Job, State
from .queue import Queue
from .retry import RetryPolicy
from .worker import Worker

__all__ = ["Job", "Queue", "RetryPolicy", "State", "Worker"]
