"""The options by which a check is told which programs to run: --preset and --bin."""
import pathlib

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def add_options(parser):
    parser.add_argument("--preset", default="dev", help="preset of the programs (%(default)s)")
    parser.add_argument("--bin", type=pathlib.Path,
                        help="folder of the programs, in place of --preset")


def parse(parser):
    """The arguments of `parser`, which has the options; `bin` is the folder, which has
    the programs."""
    args = parser.parse_args()
    args.bin = (args.bin or SOURCE / "build" / args.preset / "bin").resolve()
    if not (args.bin / "fleet").is_file():
        built = sorted(path.parts[-3] for path in SOURCE.glob("build/*/bin/fleet"))
        parser.error(f"{args.bin}: no program 'fleet'; built presets: {', '.join(built) or 'none'}; "
                     "hint: cmake --build --preset NAME, or name a folder by --bin")
    return args
