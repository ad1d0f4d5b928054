"""lab/benchmarks/provenance.py: the origin of a record."""

import subprocess

from lab.benchmarks import provenance


def test_a_record_says_how_it_was_made():
    record = provenance.provenance("lab/benchmarks/step.py", ["--tiny"])
    assert record["command"] == "python lab/benchmarks/step.py --tiny"
    assert list(record)[1:] == ["date", "commit", "versions", "device", "cores", "load_at_start"]


def test_a_command_does_not_say_where_somebody_keeps_things():
    record = provenance.provenance("lab/benchmarks/step.py", ["--model", "/home/ada/base", "--data", "data/glue"])
    assert record["command"] == "python lab/benchmarks/step.py --model base --data data/glue"


def test_a_tree_with_new_records_alone_is_the_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    record, code = tmp_path / "lab" / "records" / "step.json", tmp_path / "step.py"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    code.write_text("x = 1\n")
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    record.write_text("{1}")
    clean = provenance.commit()
    code.write_text("x = 2\n")
    assert not clean.endswith("-dirty") and provenance.commit() == f"{clean}-dirty"
