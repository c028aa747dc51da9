"""Prints what a reader that watches a live run sees: RUN BEGUN GO.

Reads every folder of event files below RUN, makes the file BEGUN, waits for GO,
reads again and prints a line for each tag:  FOLDER TAG STEPS
"""

import pathlib
import sys
import time

from tensorboard.backend.event_processing import event_accumulator


def main(run, begun, go):
    run = pathlib.Path(run)
    folders = sorted({file.parent for file in run.rglob("*tfevents*")})
    readers = {folder: event_accumulator.EventAccumulator(str(folder)) for folder in folders}
    for reader in readers.values():
        reader.Reload()
    pathlib.Path(begun).touch()
    deadline = time.monotonic() + 40
    while not pathlib.Path(go).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    for folder, reader in readers.items():
        reader.Reload()
        for tag in reader.Tags()["scalars"]:
            print(folder.relative_to(run), tag, [e.step for e in reader.Scalars(tag)])


if __name__ == "__main__":
    main(*sys.argv[1:])
