"""A replay service as a child process: reads its configuration from the first line of standard
input, prints its address as JSON, and ends at the next line or the end of the input. An error is
printed as JSON, too."""

import json
import sys


def main():
    from replicant import _replay, errors

    try:
        server = _replay.Server(sys.stdin.readline())
        print(json.dumps({"endpoint": server.endpoint}), flush=True)
        sys.stdin.readline()
        server.close()
    except errors.Error as error:
        print(json.dumps({"error": str(error), "kind": type(error).__name__}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
