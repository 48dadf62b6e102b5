import json

import pytest


def test_it_follows_a_run_from_its_last_steps_to_ctrl_c(run_file, terminal) -> None:
    file = run_file("a")
    for step in range(100):
        file.add(step, loss=100 - step)
    followed = terminal("tail", file.directory)
    followed.wait_for(" 99  loss 1")
    assert followed.lines[0].split() == ["22:14:50", "90", "loss", "10"]
    assert len(followed.lines) == 10
    file.add(100, loss=0.5, rate=2.0)
    followed.wait_for("rate")
    assert followed.lines[-1].split() == ["22:15:00", "100", "loss", "0.5", "rate", "2"]
    followed.type("\x03")
    assert followed.finish() == 130
    assert followed.lines[-1] == "^C"


def test_it_waits_for_the_first_run_in_an_empty_directory(run_file, terminal, tmp_path) -> None:
    followed = terminal("tail", tmp_path, columns=200)
    followed.wait_for("there is no scalar in")
    run_file("new").add(1, loss=2.0)
    followed.wait_for("new  loss 2")
    run_file("other").add(3, loss=4.0)
    followed.wait_for("other  loss 4")


def test_a_restart_is_shown_and_what_comes_after_it(run_file, terminal) -> None:
    file = run_file("a")
    for step in range(5):
        file.add(step, loss=step)
    followed = terminal("tail", file.directory)
    followed.wait_for("loss 4")
    restarted = run_file("b").start(1, wall_time=1_700_000_000.5)
    for step in range(1, 9):  # as far as it was, and farther, before anybody looks
        restarted.add(step, loss=10 * step)
    file.append(restarted)
    followed.wait_for("loss 80")
    values = [line.split()[-1] for line in followed.lines]
    again = ["10", "20", "30", "40", "50", "60", "70", "80"]
    assert values == ["0", "1", "2", "3", "4", "starts", *again]
    file.start(5, wall_time=1_700_000_100.0)
    followed.wait_for("5  a session starts")


def test_lines_break_between_values_in_a_narrow_terminal(run_file, terminal) -> None:
    file = run_file("a").add(1, learning_rate=1.0, training_loss=2.0, accuracy=3.0)
    followed = terminal("tail", file.directory, columns=40)
    followed.wait_for("accuracy")
    assert [line.split() for line in followed.lines] == [
        ["22:13:21", "1", "learning_rate", "1"],
        ["training_loss", "2"],
        ["accuracy", "3"],
    ]


def test_json_is_a_line_a_value_at_once(run_file, start_piped) -> None:
    file = run_file("a").add(1, loss=float("nan"))
    process = start_piped("tail", file.directory, "--json", "--tag", "loss")
    assert json.loads(process.stdout.readline()) == {
        "run": ".", "step": 1, "wall_time": 1_700_000_001.0, "tag": "loss", "value": "NaN"
    }  # fmt: skip
    file.add(2, rate=1.0, loss=5.0)
    assert json.loads(process.stdout.readline())["value"] == 5.0
    file.start(2, wall_time=1_700_000_100.0)
    assert json.loads(process.stdout.readline())["session_log"] == "START"


@pytest.mark.parametrize("tag", ["lost", "accuracy"])
def test_a_tag_that_is_not_there_yet_is_waited_for(run_file, terminal, tag) -> None:
    file = run_file("a").add(1, loss=1.0)
    followed = terminal("tail", file.directory, "--tag", tag, columns=200)
    followed.wait_for(f"there is no scalar {tag} in")
    file.add(2, **{tag: 2.0})
    followed.wait_for(f"{tag} 2")


def test_a_run_that_is_removed_is_waited_for(run_file, terminal) -> None:
    file = run_file("a").add(0, loss=1.0)
    followed = terminal("tail", file.directory, columns=200)
    followed.wait_for("loss 1")
    file.path.unlink()
    file.directory.rmdir()
    followed.wait_for("waiting for it")
    run_file("a").add(1, loss=2.0)
    followed.wait_for("loss 2")
    assert sum("waiting" in line for line in followed.lines) == 1
