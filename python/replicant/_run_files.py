"""The files in the folder of a run, as a fleet writes them (docs/metrics.md)."""

import json
import os
import pathlib


def records(file):
    """The objects of a file of JSON lines; the last line may be half written."""
    records = []
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return records
    for line in text.splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def flat_yaml(file):
    """The values of a YAML file that a fleet has written, {"a.b": "text"}: mappings in blocks,
    everything else on one line."""
    values, path = {}, []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return values
    for line in lines:
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        depth = len(line) - len(line.lstrip())
        while path and path[-1][0] >= depth:
            path.pop()
        name, colon, value = bare.partition(":")
        if bare.startswith("- ") or not colon or (value and not value.startswith(" ")):
            # an element of a list belongs to the key above
            key = ".".join(part for _, part in path)
            values[key] = (values.get(key, "") + " " + bare).strip()
            continue
        if value.strip():
            values[".".join([*(part for _, part in path), name])] = value.strip()
        else:
            path.append((depth, name))
    return values


def status(folder):
    """What status.json says; without roles before the fleet has written it."""
    try:
        return json.loads((folder / "status.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {"roles": [], "hosts": [], "time": 0.0, "limit": "", "problem": ""}


def is_running(folder) -> bool:
    """Whether a fleet, or a learner alone, runs in the folder. Of one on another host, or of another
    user, whether state.yaml says so: a killed one does, too."""
    lock = folder / "lock"
    try:
        host, _, pid = lock.read_text(encoding="utf-8").rpartition("/")
        if host == os.uname().nodename:
            # a try to take the lock could keep a fleet out
            return any(_is_same(file, lock) for file in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False
    except PermissionError:
        pass
    return flat_yaml(folder / "state.yaml").get("status") == "running"


def _is_same(file, other) -> bool:
    try:
        return file.samefile(other)
    except OSError:  # closed meanwhile
        return False
