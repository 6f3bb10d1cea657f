"""What can go wrong, for callers to tell apart."""


class JobqError(Exception):
    """The root of all errors of this library."""


class LeaseExpired(JobqError):
    """A worker finished a job that had been given to somebody else meanwhile. Its result is not kept."""

    def __init__(self, job_id: int, token: str) -> None:
        super().__init__(f"job {job_id}: lease {token} is no longer valid")
        self.job_id = job_id


class QueueFull(JobqError):
    """More jobs wait than `Queue.max_waiting` allows."""


class UnknownKind(JobqError):
    """No handler is registered for a job's kind."""


class PayloadTooLarge(JobqError):
    """A payload is over the limit of `job.MAX_PAYLOAD_BYTES`."""
