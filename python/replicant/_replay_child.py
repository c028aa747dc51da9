"""A replay service as a child process: reads its configuration from the first line of standard
input, prints its address as JSON, and ends with the end of the input."""

import json
import sys


def main():
    from replicant import _replay, errors

    yaml = sys.stdin.readline()
    try:
        server = _replay.Server(yaml)
    except errors.Error as error:
        print(json.dumps({"error": str(error), "kind": type(error).__name__}), flush=True)
        return 1
    print(json.dumps({"endpoint": server.endpoint}), flush=True)
    sys.stdin.read()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
