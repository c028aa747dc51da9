"""What objects with a C++ core do after close(), and when they are copied."""

from replicant.errors import Error


class Closed:
    """In the place of the core of a closed object: every use raises Error."""

    def __init__(self, name: str):
        self.__dict__["_name"] = name

    def __getattr__(self, attribute):
        raise Error(f"{self._name}: closed; hint: make another")


class NoCopy:
    """Has copy(), deepcopy() and pickle raise Error: two objects would share one core."""

    _instead = "make another with the same arguments"

    def __reduce_ex__(self, protocol):
        raise Error(f"{type(self).__name__}: cannot be copied or pickled; hint: {self._instead}")
