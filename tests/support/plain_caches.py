"""The caches' policies as slow, obvious code: one record at a time, dicts in order of age."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

ENTRY_BYTES = 128


class Plain:
    """Bounds and ages, common to both policies; `store` gives a key's rows and their bytes."""

    kept: Callable[[], list[Any]]
    ask: Callable[[Any], None]
    remove: Callable[[Any], None]
    queues: Any

    def __init__(self, store, ttl=None, idle_ttl=None, missing_ttl=None, **bounds):
        self.store = store
        self.limits = (bounds.get("rows", 1 << 62), bounds.get("bytes", 1 << 62))
        self.ttl, self.idle_ttl, self.missing_ttl = ttl, idle_ttl, missing_ttl
        self.read, self.used = {}, {}
        self.evictions = self.expired = self.uncacheable = 0

    def batch(self, keys, now):
        for key in keys:
            self.forget_if_too_old(key, now)
        for key in set(keys) - set(self.kept()):  # what is in memory stays so for the batch
            self.read[key] = now
        for key in keys:
            self.ask(key)
            self.used[key] = now

    def expire(self, now):
        for key in self.kept():
            self.forget_if_too_old(key, now)

    def forget_if_too_old(self, key, now):
        if key in self.kept():
            limit = self.ttl if self.store[key][0] else self.missing_ttl
            is_old = limit is not None and now - self.read[key] >= limit
            is_idle = self.idle_ttl is not None and now - self.used[key] >= self.idle_ttl
            if is_old or is_idle:
                self.remove(key)
                self.expired += 1

    def weight(self, keys):
        rows = sum(max(self.store[key][0], 1) for key in keys)
        return rows, sum(self.store[key][1] + ENTRY_BYTES for key in keys)

    def is_over(self, keys, share=1.0):
        return any(
            used > (limit if share == 1.0 else limit - max(1, limit // 10))
            for used, limit in zip(self.weight(keys), self.limits, strict=True)
        )


class PlainLru(Plain):
    """The least recently used is evicted."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.queue = OrderedDict()

    def kept(self):
        return list(self.queue)

    def remove(self, key):
        del self.queue[key]

    def ask(self, key):
        if key in self.queue:
            self.queue.move_to_end(key)
            return
        if self.is_over([key]):
            self.uncacheable += 1
            return
        while self.is_over([*self.queue, key]):
            self.queue.popitem(last=False)
            self.evictions += 1
        self.queue[key] = True

    def queues(self):
        return {"small": [], "main": self.kept()[::-1], "ghost": []}


class PlainS3Fifo(Plain):
    """New keys enter a small queue; those used again go on to the main one."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.small, self.main, self.ghost = OrderedDict(), OrderedDict(), OrderedDict()

    def kept(self):
        return [*self.small, *self.main]

    def remove(self, key):
        (self.small if key in self.small else self.main).pop(key)

    def ask(self, key):
        for queue in (self.small, self.main):
            if key in queue:
                queue[key] = min(queue[key] + 1, 3)
                return
        if self.is_over([key]):
            self.uncacheable += 1
            return
        to_main = self.ghost.pop(key, None) is not None
        while self.is_over([*self.kept(), key]):
            self.evict()
        (self.main if to_main else self.small)[key] = 0

    def evict(self):
        if self.is_over(self.main, share=0.9) or not self.small:
            key, hits = self.main.popitem(last=False)
            if hits:
                self.main[key] = hits - 1
            else:
                self.evictions += 1
            return
        key, hits = self.small.popitem(last=False)
        if hits > 1:
            self.main[key] = 0
            return
        self.evictions += 1
        self.ghost[key] = True
        while len(self.ghost) > len(self.small) + len(self.main):
            self.ghost.popitem(last=False)

    def queues(self):
        named = {"small": self.small, "main": self.main, "ghost": self.ghost}
        return {name: list(queue)[::-1] for name, queue in named.items()}
