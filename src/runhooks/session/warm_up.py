"""``warm_up``: compile what runs with hooks need, before the first of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runhooks.contract import RawSession, SessionRunArgs, SessionRunContext
from runhooks.session.merge import RequestMerger
from runhooks.session.scheduled_hook import ScheduledHook, noting_hook


def warm_up(
    raw: RawSession,
    merger: RequestMerger,
    caller: SessionRunArgs,
    hooks: Sequence[ScheduledHook],
    watching: Sequence[ScheduledHook],
) -> None:
    """Compile what runs of ``raw`` need.

    Args:
        raw: The session.
        merger: Merges the requests of its runs.
        caller: What their caller will ask for.
        hooks: All hooks that may take part in them.
        watching: Those that watch values in off-steps.
    """

    def compile_for(requests: Mapping[ScheduledHook, SessionRunArgs]) -> None:
        merged = merger.args(caller, requests) if requests else caller
        raw.warm_up(merged.fetches, merged.feed_dict)

    context = SessionRunContext(caller, raw, raw.global_step)
    requests = {hook: hook.warm_up(context) for hook in hooks}
    known = {
        hook: request
        for hook, request in requests.items()
        if request is not None and not merger.lacks_step(caller, hook, request)
    }
    # Those that ask in every run, whatever else is asked for.
    always = {hook: it for hook, it in known.items() if hook.always}
    compile_for(always)
    if watching:
        raw.warm_up(merger.with_watched(caller.fetches, watching)[0], caller.feed_dict)
    for hook in [it for it in known if it not in always]:
        with noting_hook(hook.name, "warm_up"):
            compile_for({**always, hook: known[hook]})
