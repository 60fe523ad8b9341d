package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A build takes longer than most tests, a package has dozens of mutants, and each mutant would need its own build of
// every test binary. So all mutants of a package are compiled in a single build if possible, and the environment
// selects the mutant of a run (see variants.go). An overlay leaves the tree unchanged, so trials can run while a
// person edits, and an interrupted run leaves no changes.

// bench is a directory with an overlay, which shows mutants to the compiler instead of the code, and with the
// binaries that were built with this overlay.
type bench struct {
	ctx       context.Context
	root, dir string
	fault     error // why the bench cannot build

	building sync.Map // func() (string, error) by package: each binary is built once
}

// newBench puts files into an overlay and builds a package with the overlay.
func newBench(ctx context.Context, root, dir, pkg string, files map[string]string) *bench {
	b := &bench{ctx: ctx, root: root, dir: dir}
	replace := map[string]string{}
	b.fault = os.MkdirAll(filepath.Join(dir, "tmp"), 0o700)
	for file, text := range files {
		// The base name is enough: all files are of the same package and directory.
		replace[file] = filepath.Join(dir, filepath.Base(file))
		b.fault = errors.Join(b.fault, os.WriteFile(replace[file], []byte(text), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	b.fault = errors.Join(b.fault, err, os.WriteFile(b.overlayFile(), overlay, 0o600))
	// The package is first built without tests, and the result is discarded. So a mutant that does not compile is
	// noticed before any test binary is linked.
	if b.fault == nil {
		b.fault = b.runGo("build", "-o", os.DevNull, "./"+pkg)
	}
	return b
}

func (b *bench) overlayFile() string { return filepath.Join(b.dir, "overlay.json") }

// runGo runs the go tool with the overlay.
func (b *bench) runGo(command string, args ...string) error {
	cmd := exec.CommandContext(b.ctx, "go", append([]string{command, "-overlay=" + b.overlayFile()}, args...)...)
	cmd.Dir = b.root
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("does not build: %w\n%s", err, output)
	}
	return nil
}

// testBinary returns the test binary of a package. The first call builds the binary.
func (b *bench) testBinary(pkg string) (string, error) {
	// Trials on a bench run at the same time and need the same binaries. The second trial waits here for the first.
	once, _ := b.building.LoadOrStore(pkg, sync.OnceValues(func() (string, error) {
		file := filepath.Join(b.dir, strings.ReplaceAll(filepath.Join("p", pkg), "/", "-")+".test")
		return file, b.runGo("test", "-c", "-vet=off", "-ldflags=-w", "-o", file, "./"+pkg)
	}))
	return once.(func() (string, error))()
}

// prepareTrials puts mutants of several packages on benches: together if possible, because a build takes longer than
// most tests, otherwise each on its own bench.
func (o options) prepareTrials(ctx context.Context, chosen []mutant, dir string) []*trial {
	// Numbers begin with 1, because 0 selects the original.
	all := make([]*trial, len(chosen))
	packages := map[string]map[int]*trial{}
	for i, m := range chosen {
		all[i] = &trial{
			ctx: ctx, root: o.root, dir: filepath.Join(dir, strconv.Itoa(i+1)), mutant: m,
			onlyNamed: o.onlyNamed, onlyBuild: o.onlyBuild, limit: o.limit,
		}
		if packages[m.pkg] == nil {
			packages[m.pkg] = map[int]*trial{}
		}
		packages[m.pkg][i+1] = all[i]
	}
	for pkg, trials := range packages {
		bring(trials, func() *bench {
			return share(ctx, o.root, filepath.Join(dir, strings.ReplaceAll(filepath.Join("p", pkg), "/", "-")), pkg,
				trials)
		})
	}
	return all
}

// bring puts trials on a shared bench. Trials that do not build are removed and built alone later, so their faults do
// not hide the others.
func bring(trials map[int]*trial, share func() *bench) {
	for b := share(); b != nil && b.fault != nil; b = share() {
		bad := b.faultyVariants()
		if len(bad) == 0 {
			bad = slices.Collect(maps.Keys(trials)) // the cause is unknown
		}
		for _, number := range bad {
			trials[number].bench = nil
			delete(trials, number)
		}
	}
}

var (
	faultLine   = regexp.MustCompile(`(?m)([\w.-]+\.go):(\d+):\d+: `)
	variantLine = regexp.MustCompile(`^func .*Planted([1-9]\d*)\(`)
)

// faultyVariants returns the numbers of the variants in which the compiler has found faults.
func (b *bench) faultyVariants() (numbers []int) {
	for _, m := range faultLine.FindAllStringSubmatch(b.fault.Error(), -1) {
		// Only the base name counts, because this name is the same in the tree and on the bench.
		text, err := os.ReadFile(filepath.Join(b.dir, m[1]))
		line, _ := strconv.Atoi(m[2])
		lines := strings.Split(string(text), "\n")
		if err != nil || line > len(lines) {
			continue
		}
		// The variant is the function that contains the line: the nearest function that begins at or above the line.
		for i := line - 1; i >= 0; i-- {
			if !strings.HasPrefix(lines[i], "func ") {
				continue
			}
			if v := variantLine.FindStringSubmatch(lines[i]); v != nil {
				number, _ := strconv.Atoi(v[1])
				numbers = append(numbers, number)
			}
			break
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// share puts the trials of a package on a bench, except for those that cannot share a build.
func share(ctx context.Context, root, dir, pkg string, trials map[int]*trial) *bench {
	files, variants, err := together(root, pkg, trials)
	if err != nil || len(variants) == 0 {
		return nil // each trial will report its own fault
	}
	b := newBench(ctx, root, dir, pkg, files)
	for _, number := range variants {
		trials[number].bench, trials[number].number = b, number
	}
	return b
}

// ownBench puts a trial on its own bench.
func (t *trial) ownBench() *bench {
	t.number = 0
	p, err := t.plantDefect(t.root)
	if err != nil {
		return &bench{dir: t.dir, fault: err}
	}
	return newBench(t.ctx, t.root, t.dir, t.pkg, map[string]string{p.file: p.fileText()})
}
