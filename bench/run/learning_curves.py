"""Learning curves of several runs: CSV files, tables by frames and minutes, a plot.

A CSV file has a line per evaluation, `task,seed,frames,minutes,updates,return`,
after lines of comment that begin with #. A published curve has no seed, minutes
or updates: its returns are means.
"""

import csv
import difflib
import json
import pathlib
import platform
import random
import statistics
import subprocess

FIELDS = ["task", "seed", "frames", "minutes", "updates", "return"]
MARKS = {"frames": [100_000, 200_000, 500_000, 1_000_000],
         "minutes": [2, 5, 10, 20, 40, 60]}


def read_config(path):
    """The lines of a configuration and of its bases, without comments."""
    lines = [line.rstrip() for line in path.read_text().splitlines()
             if line.strip() and not line.lstrip().startswith("#")]
    bases = [line.split()[1] for line in lines if line.startswith("base:")]
    for base in bases:
        lines += read_config(path.parent / base)
    return lines


def difference(kept, given):
    """The lines that differ between two recipes, kept and given."""
    lines = [json.dumps(recipe, indent=1).splitlines() for recipe in (kept, given)]
    changed = difflib.unified_diff(*lines, "kept", "given", n=0, lineterm="")
    return "".join(f"  {line}\n" for line in changed if not line.startswith("@@"))


def read_records(path):
    """The records of a file of JSON lines; the last line may be cut."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]


def read_evaluations(folder):
    lines = read_records(folder / "evaluations.jsonl")
    return [line for line in lines if line.get("frames") is not None]


def last_frames(folder):
    """Frames that a run has reached. Its last evaluation may be before its end."""
    lines = read_records(folder / "learner.jsonl") + read_evaluations(folder)
    return max((line.get("frames") or 0 for line in lines), default=0)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def read_lines(path):
    """The lines of comment of a CSV file, without "# ", and its rows."""
    if not path.exists():
        return [], []
    lines = path.read_text().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ")]
    return comments, list(csv.reader(line for line in lines
                                     if not line.startswith("#")))[1:]


def write_csv(path, folder, comments):
    """Writes the evaluations of the runs folder/TASK-SEED.

    Rows of other runs in path, such as from another machine, stay.
    """
    kept_comments, kept_rows = read_lines(path)
    runs = [(*run.name.rpartition("-")[::2], read_evaluations(run))
            for run in folder.glob("*/")]
    here = {(task, seed) for task, seed, lines in runs if lines}
    rows = [row for row in kept_rows if tuple(row[:2]) not in here]
    rows += [[task, seed, str(line["frames"]), f"{line['seconds'] / 60:.2f}",
              str(line["step"]), f"{line['return']:.1f}"]
             for task, seed, lines in runs for line in lines]
    rows.sort(key=lambda row: (row[0], row[1], int(row[2])))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        file.writelines(f"# {comment}\n"
                        for comment in dict.fromkeys(kept_comments + comments))
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows(rows)


def read_csv(paths, axis="frames"):
    """{name: {task: {seed: [(x, return), ...]}}}, a name per file, or per seed of
    a file of published means; x by `axis`. Points without it are left out."""
    studies = {}
    for path in paths:
        with open(path, newline="") as file:
            for row in csv.DictReader(line for line in file
                                      if not line.startswith("#")):
                is_mean = not row["updates"]
                name = row["seed"] if is_mean else path.stem
                seed = "mean" if is_mean else row["seed"]
                if not row[axis]:
                    continue
                curve = studies.setdefault(name, {}).setdefault(row["task"], {})
                curve.setdefault(seed, []).append(
                    (float(row[axis]), float(row["return"])))
    return studies


def is_published(seeds):
    return set(seeds) == {"mean"}


def tasks_of(studies):
    """The tasks that were trained; all if every study is a published one."""
    trained = {task for study in studies.values() for task, seeds in study.items()
               if not is_published(seeds)}
    return sorted(trained or {task for study in studies.values() for task in study})


def values_at(seeds, x):
    """The returns of the seeds that have come to x; of a published curve, only
    where it has a point."""
    if is_published(seeds):
        return [value for point, value in seeds["mean"] if point == x]
    values = [at(curve, x) for curve in seeds.values()]
    return [value for value in values if value is not None]


def at(curve, x):
    """The return at x, between evaluations; None beyond the curve.

    The last evaluation of a run comes up to 2 % before its limit.
    """
    points = sorted(curve)
    if not points or points[-1][0] < 0.98 * x:
        return None
    before = (0, points[0][1])
    for point in points:
        if point[0] >= x:
            share = (x - before[0]) / max(1e-9, point[0] - before[0])
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


def interquartile_mean(values):
    """Mean of the middle half, with weights at its ends (rliable, 2021)."""
    ordered = sorted(values)
    cut = len(ordered) / 4
    total = weight = 0.0
    for i, value in enumerate(ordered):
        share = max(0.0, min(i + 1, len(ordered) - cut) - max(i, cut))
        total += share * value
        weight += share
    return total / weight


def interval(values, statistic=interquartile_mean, rounds=2000):
    """95 % interval of a statistic, by the bootstrap over the values."""
    if len(values) < 2:
        return values[0], values[0]
    draw = random.Random(1)
    drawn = sorted(statistic(draw.choices(values, k=len(values)))
                   for _ in range(rounds))
    return drawn[int(0.025 * rounds)], drawn[int(0.975 * rounds) - 1]


def table(studies, axis="frames"):
    """The mean return by task at each mark of the axis: a column per study. In
    brackets the least and the largest of the seeds, and their number."""
    tasks = tasks_of(studies)
    trained = [study[task] for study in studies.values() for task in tasks
               if task in study and not is_published(study[task])]
    lines = []
    for mark in MARKS[axis]:
        if trained and not any(values_at(seeds, mark) for seeds in trained):
            continue
        lines.append(f"{mark:,} {axis}".ljust(26)
                     + "".join(name.rjust(24) for name in studies))
        means = {name: [] for name in studies}
        for task in tasks:
            cells = []
            for name, study in studies.items():
                values = values_at(study.get(task, {}), mark)
                text = ""
                if values:
                    means[name].append(statistics.fmean(values))
                    text = f"{means[name][-1]:.0f}"
                if len(values) > 1:
                    text += f" ({min(values):.0f}-{max(values):.0f}; {len(values)})"
                cells.append(text.rjust(24))
            lines.append(task.ljust(26) + "".join(cells))
        lines.append("mean of its tasks".ljust(26) + "".join(
            (f"{statistics.fmean(m):.0f} ({len(m)})" if m else "").rjust(24)
            for m in means.values()) + "\n")
    return "\n".join(lines)


def first_over(paths, score):
    """A line per run: the first evaluation of at least `score`."""
    lines = []
    by_frames, by_minutes = (read_csv(paths, axis) for axis in ("frames", "minutes"))
    for name, tasks in by_minutes.items():
        for task, seeds in tasks.items():
            for seed, curve in seeds.items():
                i = next((i for i, point in enumerate(curve) if point[1] >= score),
                         None)
                frames = by_frames[name][task][seed]
                reached = (f"never; best {max(p[1] for p in curve):.0f}" if i is None
                           else f"{frames[i][0]:,.0f} frames, {curve[i][0]:.1f} minutes")
                lines.append(f"{name} {task} seed {seed}: {score:g} after {reached}")
    return "\n".join(lines)


def band(seeds):
    """(frames, interquartile mean, low, high) over the seeds, where all are."""
    end = min(max(point[0] for point in curve) for curve in seeds.values())
    rows = []
    for i in range(1, 51):
        frames = end * i / 50
        values = [at(curve, frames) for curve in seeds.values()]
        rows.append((frames, interquartile_mean(values), *interval(values, rounds=400)))
    return rows


def plot(studies, path):
    """Draws a panel per task, as far as its runs came: a line per study, its
    interval over seeds shaded."""
    tasks = tasks_of(studies)
    columns = min(4, len(tasks))
    height = (len(tasks) + columns - 1) // columns
    script = [f"set terminal pngcairo noenhanced size {420 * columns},{300 * height + 40}",
              f"set output '{path}'", "set yrange [0:1000]",
              "set xlabel 'thousand frames' offset 0,0.7",
              f"set multiplot layout {height},{columns}"]
    for t, task in enumerate(tasks):
        parts = []
        points = [point for study in studies.values()
                  for curve in study.get(task, {}).values()
                  if not is_published(study[task]) for point in curve]
        for n, (name, study) in enumerate(studies.items()):
            seeds = study.get(task)
            if not seeds:
                continue
            block = f"$d{t}_{n}"
            rows = ([(f, r, r, r) for f, r in sorted(seeds["mean"])]
                    if is_published(seeds) else band(seeds))
            script.append(f"{block} << END")
            script += [" ".join(f"{value:g}" for value in row) for row in rows]
            script.append("END")
            if is_published(seeds):
                parts.append(f"{block} using ($1/1000):2 with linespoints dt 2 pt 7 "
                             f"lc {n + 1} title \"{name}\"")
                continue
            parts.append(f"{block} using ($1/1000):3:4 with filledcurves "
                         f"fs transparent solid 0.2 lc {n + 1} notitle")
            parts.append(f"{block} using ($1/1000):2 with lines lw 2 lc {n + 1} "
                         f"title \"{name} ({len(seeds)})\"")
        end = max((point[0] for point in points), default=0) / 1000
        # the key lies where no curve is
        is_low = bool(points) and max(point[1] for point in points) < 600
        script += [f"set title '{task}'", f"set xrange [0:{end or '*'}]",
                   f"set key {'top left' if is_low else 'bottom right'} samplen 1"]
        script.append("plot " + ", ".join(parts))
    subprocess.run(["gnuplot"], input="\n".join(script), text=True, check=True)
