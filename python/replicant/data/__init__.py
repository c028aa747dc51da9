"""Data sets in and out: demonstrations for a run, and what a run has collected for others.

    from replicant import data
    data.import_data("door.yaml", "data/door")   # a mapping file; see data.Mapping
    data.export("recordings/door", "shared/door", "minari")

Formats: Minari (hdf5, arrow), LeRobot v3, robomimic's HDF5, and the recordings of envs.Recorder. The packages
that read them are the extra `data`.
"""

from replicant.data._episode import Recorded
from replicant.data._export import export
from replicant.data._import import Import, import_data
from replicant.data._mapping import Mapping

__all__ = ["Import", "Mapping", "Recorded", "export", "import_data"]
