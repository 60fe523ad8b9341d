package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Two builds are compared as a whole: each measures the same benchmark in a separate process, with its own client and
// server. The builds take turns of a whole measurement.

// buildRounds is how often each build measures.
const buildRounds = 5

// compareBuilds measures a benchmark with this build and with another build.
func compareBuilds(ctx context.Context, s *Site, b Benchmark) (f Figure, err error) {
	var own, other Figure
	measure := func(binary string, into *Figure) func() (float64, error) {
		return func() (value float64, err error) {
			*into, err = s.measuredBy(ctx, binary, b.Name)
			return into.Value, err
		}
	}
	if f, err = s.measuredBy(ctx, s.Binary, b.Name); err != nil { // warms up, and returns the unit
		return f, err
	}
	f = Figure{Unit: f.Unit}
	if err := s.compareInTurns(ctx, &f, buildRounds, measure(s.Binary, &own), measure(s.Against, &other)); err != nil {
		return f, err
	}
	if strings.HasSuffix(f.Unit, "/s") {
		f.ratioOf(0.95)
	} else {
		f.Target, f.OK = "ratio ≤ 1.05", *f.Ratio <= 1.05
	}
	f.Detail = fmt.Sprintf("%d rounds of the whole benchmark with each build; the last by this build: %s; by %s: %s",
		buildRounds, own.Detail, s.Against, other.Detail)
	return f, nil
}

// measuredBy lets a binary of changefeed measure a benchmark.
func (s *Site) measuredBy(ctx context.Context, binary, name string) (f Figure, err error) {
	cmd := exec.CommandContext(ctx, binary, "bench", name, "--dir", s.dir, "-o", "json")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that the binary ends its servers
	cmd.WaitDelay = 2 * hostStop
	out, err := cmd.Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(failed.Stderr)))
		}
		return f, fmt.Errorf("measure with %s: %w", binary, err)
	}
	if err := json.Unmarshal(out, &f); err != nil {
		return f, fmt.Errorf("%s said %q: %w", binary, out, err)
	}
	return f, nil
}
