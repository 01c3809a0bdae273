"""A worker whose pace is told durations that the test gives, and reads no clock."""

from oncely.worker.pace import Pace
from oncely.worker.worker import Worker

AN_HOUR = 3600.0


class GivenPace(Pace):
    """As if every job and every exchange took just so long. What is in hand stays there until the
    test says that its time is over."""

    def __init__(self, concurrency: int, *, job_seconds: float, exchange_seconds: float) -> None:
        super().__init__(concurrency)
        self.hand_seconds = AN_HOUR
        self._each_job_seconds = job_seconds
        self._each_exchange_seconds = exchange_seconds

    def ended(self, ran_seconds: float, *, by_itself: bool = False) -> None:
        super().ended(self._each_job_seconds, by_itself=by_itself)

    def exchanged(self, seconds: float, now: float, *, idle: bool = False) -> None:
        super().exchanged(self._each_exchange_seconds, 0.0, idle=idle)

    def learn(self) -> None:
        """As if such jobs had run before."""
        for _ in range(2):
            self.ended(self._each_job_seconds)
            self.exchanged(self._each_exchange_seconds, 0.0)

    def fetch_no_more(self) -> None:
        """As after jobs that take long."""
        self._rates = (0.0, 0.0)


def given_pace(
    worker: Worker, *, job_seconds: float = 0.001, exchange_seconds: float = 0.01
) -> GivenPace:
    """Before the worker is started. Without numbers: quick jobs, of which many are fetched ahead
    once some have ended."""
    pace = GivenPace(
        worker._concurrency, job_seconds=job_seconds, exchange_seconds=exchange_seconds
    )
    worker._pace = pace
    return pace
