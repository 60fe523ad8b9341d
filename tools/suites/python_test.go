package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pytest stands in for the module: its first run ends within its second test, and its second run runs the rest.
const pytest = `
import json, os
log = os.environ["CONFORMANCE_OUTCOMES"]
again = os.path.exists(log)
def write(text):
    with open(log, "a") as file:
        file.write(text)
def ran(name, outcome):
    write(json.dumps({"begun": name}) + "\n" + json.dumps({"id": name, "outcome": outcome, "message": "m"}) + "\n")
if again:
    ran("t.py::C::d[1::2]", "failed")
    ran("t.py::e", "skipped")
    write(json.dumps({"ended": True}) + "\n")
else:
    ran("t.py::C::a", "passed")
    write(json.dumps({"begun": "t.py::C::b"}) + "\n" + '{"id": "t.py::C')
    os._exit(1)
`

// The Python SDK's asynchronous tests often hang for ever when their time is over, until they are killed. They must not
// cost the outcomes of the other tests of their file.
func TestATestOfPythonThatIsKilledCostsItsOwnOutcome(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("the program that keeps the outcomes is in Python, and python3 is not installed here")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pytest.py"), []byte(pytest), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), python, "-c", `
import pathlib, subprocess, sys, time
import public
for row in public.test(sys.executable, pathlib.Path(sys.argv[1]), "t.py", time.monotonic() + 60):
    print(row["test"], row["outcome"], row["message"])
public.STUCK_LIMIT = 0.1
asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
print(public.watch(asleep, pathlib.Path("none"), time.monotonic() + 60), asleep.returncode)
`, dir)
	source, err := filepath.Abs("../../conformance/python")
	if err != nil {
		t.Fatal(err)
	}
	run.Env = append(os.Environ(), "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1")
	run.Stderr = os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("run the tests of a file: %v", err)
	}
	want := "t.py::C::a passed m\nt.py::C::b failed not finished in time\nt.py::C::d[1::2] failed m\nt.py::e skipped m\n" +
		"not finished within 0 seconds -9\n"
	told, got, _ := strings.Cut(string(out), "\n")
	if got != want || !strings.HasPrefix(told, "t.py: 2 failed, 1 passed, 1 skipped, ") {
		t.Errorf("%s\n%s\nwant\n%s", told, got, want)
	}
}
