"""How many examples a property is tried on: fewer in the short loop of `make test-fast`."""

from hypothesis import settings


def examples(count: int) -> int:
    """`count`, or what the profile allows where that is less."""
    profile: int = settings.default.max_examples  # type: ignore[union-attr]
    return min(count, profile) if settings.get_current_profile_name() == "fast" else count
