"""What looking for a training's state, and copying it, leaves in the program: nothing."""

import gc
import threading
import warnings
import weakref

import pytest
import torch
from kept import keeper_of
from torch import nn

from gradvane._governor.attachments import Found
from gradvane._process.unwarned import Unwarned


@pytest.fixture
def no_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_what_was_seen_when_it_looked_for_schedulers_is_freed_as_ever(no_collections):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = [torch.ones(3)]
    freed = weakref.ref(model), weakref.ref(optimizer), weakref.ref(batch[0])
    Found().look([optimizer])
    del model, optimizer, batch
    assert [one() for one in freed] == [None, None, None], "without a collection"


def said_once(category=UserWarning):
    """A line that warns each time it runs, which Python shows once."""
    warnings.warn("by the program", category, stacklevel=1)


def shown(work, times=5):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        globals().get("__warningregistry__", {}).clear()
        for _ in range(times):
            said_once()
            work()
        return [str(one.message) for one in seen]


class WarnsOfItsState(torch.optim.lr_scheduler.ConstantLR):
    def state_dict(self):
        warnings.warn("by the scheduler", UserWarning, stacklevel=1)
        return super().state_dict()


def test_what_python_has_warned_of_is_not_shown_again_at_each_snapshot():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = WarnsOfItsState(optimizer)
    with keeper_of([model], [optimizer]) as keeper:
        assert shown(keeper.snapshot) == ["by the program"]

    def as_pythons_own():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scheduler.state_dict()

    assert shown(as_pythons_own) == ["by the program"] * 5, "the control"


def test_warnings_of_other_threads_and_filters_of_the_program_stay():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        with Unwarned():
            said_once()
            thread = threading.Thread(target=said_once, args=[DeprecationWarning])
            thread.start()
            thread.join()
            warnings.filters.append(("ignore", None, ResourceWarning, None, 0))
        assert [one.category for one in seen] == [DeprecationWarning]
        assert warnings.filters == [*before, ("ignore", None, ResourceWarning, None, 0)]
        seen.clear()
        with Unwarned("by the prog"):
            said_once()
            warnings.warn("by another", stacklevel=1)
        assert [str(one.message) for one in seen] == ["by another"]


def test_a_filter_that_another_thread_brings_back_matches_nothing_by_then():
    unwarned = Unwarned()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        unwarned.begin()
        with warnings.catch_warnings():  # it restores what it has saved
            unwarned.end()
        said_once()
        assert len(seen) == 1 and any(one[0] == "ignore" for one in warnings.filters), "it is there"
