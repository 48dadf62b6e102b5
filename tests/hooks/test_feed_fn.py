import pytest

import runhooks as rh


def test_feeds_every_run(graph):
    x = rh.placeholder("x")
    values = iter([1.0, 2.0, 3.0])
    hook = rh.FeedFnHook(lambda: {x: next(values)})
    doubled = x * 2.0
    seen = []
    with rh.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            seen.append(float(session.run(doubled)))
    assert seen == [2.0, 4.0, 6.0]  # and the end of what it feeds is a good end


def test_what_the_caller_feeds_as_well_is_refused(graph):
    x = rh.placeholder("x")
    with rh.MonitoredSession(hooks=[rh.FeedFnHook(lambda: {x: 1.0})]) as session:
        with pytest.raises(RuntimeError, match="'x:0' .*FeedFnHook"):
            session.run(x, feed_dict={x: 1.0})


def test_it_must_be_a_function():
    with pytest.raises(TypeError, match="feed_fn"):
        rh.FeedFnHook({})
