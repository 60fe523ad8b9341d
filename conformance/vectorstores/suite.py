"""Runs the tests of the vector stores, and counts them. run.py starts it."""

import logging
import pathlib
import sys
import unittest
import warnings


def main():
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    here = str(pathlib.Path(__file__).resolve().parent)
    tests = unittest.TestLoader().discover(here, pattern="test_*.py", top_level_dir=here)
    result = unittest.TextTestRunner(verbosity=1, warnings=False).run(tests)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    passed = result.testsRun - failed - len(result.skipped)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
