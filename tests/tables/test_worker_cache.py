"""What a process keeps: bounded, of one version a key, its own after a fork, shared by threads."""

import multiprocessing
import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from rivermouth.tables.worker_cache import WorkerCache

calls = st.lists(
    st.tuples(st.sampled_from(["get", "put", "pop"]), st.integers(0, 5), st.integers(0, 1)),
    max_size=40,
)


@given(calls, st.integers(1, 4))
def test_it_keeps_the_most_recently_used_of_the_right_version(calls, size):
    evicted = []
    cache, plain, made = WorkerCache(size, evicted.append), {}, 0
    for call, key, version in calls:
        made += 1
        known = plain.pop(key, None)
        if call == "pop":
            found = cache.pop(key, version=version)
            assert found == (known[1] if known and known[0] == version else None)
            continue
        is_known = call == "get" and known is not None and known[0] == version
        plain[key] = known if is_known else (version, made)
        if call == "get":
            assert cache.get(key, lambda made=made: made, version=version) == plain[key][1]
        else:
            cache.put(key, made, version=version)
        for old in [*plain][:-size]:
            del plain[old]
        assert cache.values() == [value for _, value in plain.values()]
        assert cache.find(key) == plain[key][1]
    assert len(evicted) == len(set(evicted))
    assert not set(evicted) & set(cache.values())


def test_a_fork_starts_with_nothing_even_while_another_thread_is_making():
    cache, started, go_on = WorkerCache(2), threading.Event(), threading.Event()
    cache.put("a", 1)
    maker = threading.Thread(target=lambda: cache.get("b", lambda: (started.set(), go_on.wait())))
    maker.start()
    started.wait()
    fork = multiprocessing.get_context("fork")
    found = fork.Queue()
    child = fork.Process(target=lambda: found.put(cache.get("a", lambda: 2)))
    child.start()
    assert found.get(timeout=20) == 2
    child.join()
    go_on.set()
    maker.join()
    assert cache.get("a", lambda: 3) == 1


def test_threads_that_ask_at_once_get_one_value():
    cache, made = WorkerCache(2), []

    def make():
        time.sleep(0.01)
        made.append(object())
        return made[-1]

    found = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get("a", make))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == made * 8
