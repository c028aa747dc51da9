"""How this package starts other Python processes.

They run the interpreter of this one and import what it can, whether the package lies in
site-packages, in pip's --user, --prefix or --target folder, or on a path that was added to
sys.path; no script of pip is needed.
"""

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile

from replicant.errors import IoError


def python(module: str) -> list[str]:
    """The command that runs a module of this package."""
    if not sys.executable or not os.access(sys.executable, os.X_OK):
        raise IoError(f"sys.executable is {sys.executable!r}, no Python interpreter that could be "
                      "started; hint: set REPLICANT_FLEET to the program fleet of a build, or "
                      "sys.executable to the interpreter")
    # -P: the working folder is only searched if this process searches it
    return [sys.executable, "-P", "-m", module]


def environment() -> dict[str, str]:
    """The environment variables for such a process."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path}


def use_ffmpeg_of_package():
    """If the system has no program ffmpeg, the one in the package imageio-ffmpeg takes its place in
    this process and in those that it starts."""
    if shutil.which("ffmpeg") or importlib.util.find_spec("imageio_ffmpeg") is None:
        return
    import imageio_ffmpeg

    folder = tempfile.mkdtemp(prefix="replicant-ffmpeg-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.symlink(imageio_ffmpeg.get_ffmpeg_exe(), os.path.join(folder, "ffmpeg"))
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), folder])
