"""matplotlib's own Python environment, build/plot_venv. Only programs that draw
need it; scripts/setup does not make it."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/plot_venv"
PACKAGES = [
    "matplotlib==3.11.2", "contourpy==1.3.3", "cycler==0.12.1",
    "fonttools==4.68.0", "kiwisolver==1.5.1", "numpy==2.4.6",
    "packaging==26.3", "pillow==13.0.0", "pyparsing==3.3.3",
    "python-dateutil==4.0.0", "tzdata==2026.6",
]


def run_here():
    """Starts the program again with that interpreter, made if needed, unless it
    runs there."""
    if pathlib.Path(sys.prefix).resolve() == FOLDER.resolve():
        return
    interpreter = FOLDER / "bin/python"
    stamp = FOLDER / ".complete"
    if not stamp.exists() or stamp.read_text() != "\n".join(PACKAGES):
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        subprocess.run([interpreter, "-m", "pip", "install", "-q", "--no-deps",
                        *PACKAGES], check=True)
        stamp.write_text("\n".join(PACKAGES))
    os.execv(interpreter, [str(interpreter), *sys.argv])
