"""Learning curves of several runs: CSV files, tables by frames and minutes, a plot.

A CSV file has a line per evaluation, `task,seed,frames,minutes,updates,return`,
after lines of comment that begin with #. A published curve has no seed, minutes
or updates: its returns are means.
"""

import csv
import difflib
import hashlib
import json
import pathlib
import platform
import re
import shutil
import statistics
import subprocess

FIELDS = ["task", "seed", "frames", "minutes", "updates", "return"]
MARKS = {"frames": [100_000, 200_000, 500_000, 1_000_000],
         "minutes": [2, 5, 10, 20, 40, 60]}
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b",
          "#e377c2", "#7f7f7f", "#bcbd22", "#000000", "#5254a3")


def read_config(path):
    """The lines of a configuration and of its bases, without comments."""
    lines = [line.rstrip() for line in path.read_text().splitlines()
             if line.strip() and not line.lstrip().startswith("#")]
    # one file, or [FILE, FILE]
    bases = [line.partition(":")[2].partition("#")[0] for line in lines
             if line.startswith("base:")]
    for base in re.findall(r"[^\s\[\],]+", " ".join(bases)):
        lines += read_config(path.parent / base)
    return lines


def digest(path):
    """The first digits of the SHA-256 of read_config()."""
    return hashlib.sha256("\n".join(read_config(path)).encode()).hexdigest()[:12]


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


def progress(folder, frames):
    """How far a run of so many frames has come, in a line."""
    steps = read_records(folder / "learner.jsonl")
    if not steps:
        return "no update yet"
    last, evaluations = steps[-1], read_evaluations(folder)
    returned = f"return {evaluations[-1]['return']:.0f}" if evaluations else "no evaluation yet"
    return (f"{last_frames(folder):,.0f} of {frames:,} frames, {last['seconds'] / 60:.1f} minutes, "
            f"{last['step'] / max(last['seconds'], 1e-9):.1f} updates/s, {returned}")


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
    if not rows:
        return
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


def cell(values):
    """The mean; in brackets the least and the largest, and the number of values."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.0f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.0f}-{max(values):.0f}; {len(values)})"


def table(studies, axis="frames"):
    """The mean return by task at each mark of the axis: a column per study that has
    come there."""
    tasks = tasks_of(studies)
    trained = [study[task] for study in studies.values() for task in tasks
               if task in study and not is_published(study[task])]
    tables = []
    for mark in MARKS[axis]:
        if trained and not any(values_at(seeds, mark) for seeds in trained):
            continue
        columns = [[f"{mark:,} {axis}", *tasks, "mean of its tasks"]]
        for name, study in studies.items():
            values = [values_at(study.get(task, {}), mark) for task in tasks]
            means = [statistics.fmean(v) for v in values if v]
            if means:
                columns.append([name, *map(cell, values),
                                f"{statistics.fmean(means):.0f} ({len(means)})"])
        widths = [max(map(len, column)) + 2 for column in columns]
        tables.append("".join(
            "".join([first.ljust(widths[0]), *map(str.rjust, row, widths[1:])]).rstrip() + "\n"
            for first, *row in zip(*columns)))
    return "\n".join(tables) or f"no run has come to {MARKS[axis][0]:,} {axis}\n"


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


def mean_curve(seeds):
    """(frames, mean of the seeds), where all have been."""
    first = max(min(point[0] for point in curve) for curve in seeds.values())
    last = min(max(point[0] for point in curve) for curve in seeds.values())
    marks = [first + (last - first) * i / 50 for i in range(51)]
    return [(x, statistics.fmean(at(curve, x) for curve in seeds.values())) for x in marks]


def panel(studies, task):
    """gnuplot's commands for a task: a thin line per seed and a thick one for their
    mean, points for published means; as far as the next mark behind the runs."""
    data, parts = [], []
    ends = [point[0] for study in studies.values() for curve in study.get(task, {}).values()
            if not is_published(study[task]) for point in curve]
    end = max(ends, default=0)
    end = next((mark for mark in MARKS["frames"] if mark >= end), end) if ends else None

    def add(curve, style):
        block = f"$d{len(data)}"
        data.append("\n".join([f"{block} << END",
                               *(f"{x / 1000:g} {value:g}" for x, value in curve), "END"]))
        parts.append(f"{block} using 1:2 with {style} notitle")

    for n, study in enumerate(studies.values(), 1):
        seeds = study.get(task, {})
        if is_published(seeds):
            add(sorted(seeds["mean"]), published_style(n))
        elif seeds:
            for curve in seeds.values() if len(seeds) > 1 else ():
                add(sorted(curve), f"lines lw 0.7 lc {n}")
            add(mean_curve(seeds), own_style(n))
    return [*data, f"set title '{task}'", f"set xrange [0:{1.02 * end / 1000 if end else '*'}]",
            "plot " + ", ".join(parts)]


def published_style(n):
    return f"points pt {n + 3} ps 1.3 lw 1.5 lc {n}"


def own_style(n):
    return f"lines lw 3 lc {n}"


def key(studies, tasks):
    """gnuplot's commands for a panel of names."""
    names = [f'NaN with {(published_style if is_published(seeds) else own_style)(n)} '
             f'title "{name}"'
             for n, (name, study) in enumerate(studies.items(), 1)
             for seeds in [next((study[task] for task in tasks if task in study), None)]
             if seeds]
    return ["unset border", "unset tics", "unset title", "unset xlabel",
            "set key at graph 0,1 left top Left reverse samplen 2", "set xrange [0:1]",
            "plot " + ", ".join(names)]


def plot(studies, path):
    """Draws a panel per task, and one with the names of the studies."""
    if shutil.which("gnuplot") is None:
        raise SystemExit("gnuplot is not installed; hint: scripts/setup run installs it")
    tasks = tasks_of(studies)
    columns = min(5, len(tasks) + 1)
    height = len(tasks) // columns + 1
    script = [f"set terminal pngcairo noenhanced size {380 * columns},{300 * height}",
              f"set output '{path}'", f"set linetype cycle {len(COLORS)}",
              *(f"set linetype {n} lc rgb '{color}'" for n, color in enumerate(COLORS, 1)),
              "set yrange [0:1000]", "set xlabel 'thousand frames' offset 0,0.7",
              f"set multiplot layout {height},{columns}"]
    for task in tasks:
        script += panel(studies, task)
    script += key(studies, tasks)
    subprocess.run(["gnuplot"], input="\n".join(script), text=True, check=True)
