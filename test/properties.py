"""How many examples tests of properties draw: all of them where slow tests run too, else a part. The frontends' tests,
which CI runs without slow ones, have hypothesis's own settings."""

from hypothesis import settings

PART = 4  # one in four
LEAST = 3  # the first one is the simplest there is, which shows little

_draws_all = True


def draw_a_part() -> None:
    """Before tests are imported: their decorators ask for the number of examples."""
    global _draws_all
    _draws_all = False


def examples(count: int, **more) -> settings:
    """A decorator of a test that draws so many examples, each of which may take as long as it takes."""
    drawn = count if _draws_all else min(count, max(count // PART, LEAST))
    return settings(max_examples=drawn, deadline=None, **more)
