import json


def damage(path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)


def test_sound_files(run_file, run, tmp_path) -> None:
    for name in ("a", "b"):
        run_file(name).add(1, loss=1.0).add(2, loss=1.0)
    checked = run("check", tmp_path)
    assert checked.status == 0
    titles, a, b, _, total = checked.out.splitlines()
    assert titles.split() == ["file", "size", "records"]
    assert a.split()[-2:] == b.split()[-2:] == ["3", "sound"]
    assert total == "2 files, all sound"


def test_damage_is_located(run_file, run, tmp_path) -> None:
    run_file("a").add(1, loss=1.0)
    file = run_file("b").add(1, loss=1.0)
    offset = file.path.stat().st_size
    file.add(2, loss=1.0)
    skipped = file.path.stat().st_size - offset
    file.add(3, loss=1.0)
    damage(file.path, offset + 20)
    checked = run("check", tmp_path)
    assert checked.status == 1
    assert checked.out.splitlines()[-1] == "2 files, 1 damaged"
    assert f"  damaged at byte {offset}, {skipped} bytes skipped: " in checked.out
    a, b = json.loads(run("check", tmp_path, "--json").out)
    assert (a["sound"], b["sound"]) == (True, False)
    assert (b["damages"][0]["offset"], b["damages"][0]["skipped"]) == (offset, skipped)
    shown = run("show", tmp_path)
    assert shown.status == 0
    assert f"skipped 1 damaged place, {skipped} bytes, in {tmp_path}" in shown.errors


def test_a_curve_that_goes_back_without_a_start_is_not_sound(run_file, run) -> None:
    file = run_file("a").add(1, loss=1.0).add(5, loss=1.0).add(2, loss=1.0)
    checked = run("check", file.path)
    assert checked.status == 1
    assert "  loss goes back from step 5 to 2" in checked.out
    assert checked.out.count("without a START") == 1
    restarted = run_file("b").add(1, loss=1.0).add(5, loss=1.0).start(2, 1_700_000_006.0)
    assert run("check", restarted.add(2, loss=1.0).path).status == 0


def test_a_record_that_is_being_written_is_no_fault(run_file, run) -> None:
    file = run_file("a").add(1, loss=1.0)
    whole = file.path.stat().st_size
    file.add(2, loss=1.0)
    with file.path.open("r+b") as content:
        content.truncate(whole + 7)
    checked = run("check", file.path)
    assert checked.status == 0
    assert "cut off after 7 bytes" in checked.out


def test_of_many_files_those_that_are_not_sound_are_listed(run_file, run, tmp_path) -> None:
    for number in range(10):
        run_file(f"sound-{number}").add(1, loss=1.0)
    assert run("check", tmp_path).out.count(" sound") == 11
    run_file("sound-10").add(1, loss=1.0)
    assert run("check", tmp_path).out == "11 files, all sound\n"
    run_file("back").add(5, loss=1.0).add(2, loss=1.0)
    run_file("empty").path.write_bytes(b"")
    damage((broken := run_file("broken").add(1, loss=1.0).path), broken.stat().st_size - 5)
    checked = run("check", tmp_path)
    assert checked.status == 1
    titles, back, damaged, empty, *_, total = checked.out.splitlines()
    assert titles.split() == ["file", "size", "records"]
    assert back.split()[-3:] == ["STEPS", "GO", "BACK"]
    assert damaged.split()[-1] == "DAMAGED"
    assert empty.split()[-1] == "empty"
    assert total == "14 files, 1 damaged, 1 whose steps go back, 1 empty"
