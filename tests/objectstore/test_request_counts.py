from concurrent.futures import ThreadPoolExecutor

from laminar_core.objectstore.request_counts import RequestCounter, RequestCounts


def test_what_happened_between_two_moments_is_their_difference():
    counter = RequestCounter()
    counter.request("puts", 5)
    before = counter.counts
    counter.request("puts", 7)
    counter.request("heads")
    counter.received(3)
    counter.retried()
    happened = counter.counts - before
    assert happened == RequestCounts(puts=1, heads=1, retries=1, bytes_up=7, bytes_down=3)


def test_threads_that_count_at_the_same_time_lose_nothing():
    counter = RequestCounter()

    def work(_worker: int) -> None:
        for _ in range(2_000):
            counter.request("gets", 1)
            counter.received(2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert counter.counts == RequestCounts(gets=8_000, bytes_up=8_000, bytes_down=16_000)
