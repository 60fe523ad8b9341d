"""Runs the tests in the files whose names contain a word, and counts them. run.py starts it."""

import logging
import pathlib
import sys
import unittest
import warnings


def main(only):
    # The asynchronous client is closed while it looks after itself, and logs that.
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    # The SDK does not look at the certificate of a server on this machine, and urllib3 warns of that.
    warnings.filterwarnings("ignore", message="Unverified HTTPS request")
    here = str(pathlib.Path(__file__).resolve().parent)
    tests = unittest.TestLoader().discover(here, pattern=f"test_*{only}*.py", top_level_dir=here)
    result = unittest.TextTestRunner(verbosity=1, warnings=False).run(tests)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    passed = result.testsRun - failed - len(result.skipped)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
