package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// state is the work done so far. The state is kept between runs.
type state struct {
	Jobs map[string]progress
}

// progress is the state of a job.
type progress struct {
	Done     int
	Failures int // number of failed pieces
	Seconds  float64
	Last     time.Time
}

const (
	stateFile = "state.json"
	logFile   = "log"
)

// loadState reads the state. Without a file, no work has been done.
func loadState(dir string) (*state, error) {
	s := &state{Jobs: map[string]progress{}}
	text, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	return s, err
}

// save stores the state and adds a line to the log. The file is replaced by a rename, so a killed run of hours does
// not lose its counts.
func (s *state) save(dir, line string) error {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, stateFile)
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// next returns the job with the smallest part of its goal done.
func (s *state) next(jobs []job) job {
	part := func(j job) float64 { return float64(s.Jobs[j.name].Done) / float64(j.goal) }
	return slices.MinFunc(jobs, func(a, b job) int { return cmp.Compare(part(a), part(b)) })
}

// note counts a piece and returns a line about the piece. A piece whose failure repeats at once counts as no work.
func (s *state) note(j job, n int, took time.Duration, failure error) string {
	p := s.Jobs[j.name]
	result := "ok"
	if failure != nil {
		p.Failures++
		result = "FAILED"
	}
	if failure == nil || !j.again {
		p.Done += n
	}
	p.Seconds += took.Seconds()
	p.Last = time.Now().UTC().Truncate(time.Second)
	s.Jobs[j.name] = p
	return fmt.Sprintf("%s %s: %d %s in %.0fs %s, %d of %d", p.Last.Format(time.RFC3339), j.name, n, j.unit,
		took.Seconds(), result, p.Done, j.goal)
}

// summary returns a table for docs/benchmarks.md.
func (s *state) summary(jobs []job) string {
	var text strings.Builder
	text.WriteString("\n| job | done | goal | failures | time |\n|---|---|---|---|---|\n")
	for _, j := range jobs {
		p := s.Jobs[j.name]
		took := time.Duration(p.Seconds * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(&text, "| `%s` | %d %s | %d | %d | %v |\n", j.name, p.Done, j.unit, j.goal, p.Failures, took)
	}
	return text.String()
}
