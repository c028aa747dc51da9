"""scripts/gpu/check fits into its time, and finds frames that travel twice."""
import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "scripts/gpu"
sys.path.insert(0, str(FOLDER))


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(FOLDER / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


check, check_bundle = load("check"), load("check_bundle")


class GpuCheckTest(unittest.TestCase):
    def test_all_stages_fit_into_twelve_minutes(self):
        self.assertEqual({*check.STAGE_LIMITS_S, "sanitizer"}, set(check.STAGES))
        self.assertLessEqual(sum(check.STAGE_LIMITS_S.values()) + check.SANITIZER_S,
                             check.LIMIT_S)
        self.assertLessEqual(check.LIMIT_S, 12 * 60)

    def test_the_bundle_rehearses_every_stage(self):
        self.assertEqual(tuple(check.STAGES), check_bundle.STAGES)

    def test_frames_that_travel_twice_fail(self):
        check.check_sent("update/a", 16, check.MAX_SENT_FRAMES)
        with self.assertRaisesRegex(check.Failure, "update/a: 1536 frames went to the device, "
                                                   "want at most 16"):
            check.check_sent("update/a", 1536, check.MAX_SENT_FRAMES)

    def test_the_newest_record_with_an_update_counts_frames(self):
        counts = {"frame_store_sent_frames": 30.0, "frame_store_fetched_frames": 20.0}
        self.assertEqual(check.sent_and_fetched([{"step": 1, **counts}, {"step": 1}]), [30.0, 20.0])
        with self.assertRaisesRegex(check.Failure, "no record has frame_store_sent_frames"):
            check.sent_and_fetched([{"step": 1, "frame_store_fetched_frames": 20.0}])

    def test_updates_have_no_peer(self):
        self.assertEqual([case for case in check.CASES if not check.is_step(case)],
                         ["update/d4pg-drq-256/bf16", "update/d4pg-swingup-64/bf16"])


if __name__ == "__main__":
    unittest.main()
