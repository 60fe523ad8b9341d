// Command workflow runs the steps of a workflow on this machine, as a runner of the code host would: in a fresh clone
// of what is committed, one shell for each step, until one fails.
//
//	go run ./tools/workflow -workflow test -job linux
//	go run ./tools/workflow -workflow test -job linux -list
//
// Only steps with a command run. Actions of others, which fetch the sources and tools, are named and left out, and so
// are jobs with a matrix, whose systems this machine is not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	name := flag.String("workflow", "test", "`name` of a file in .github/workflows, without its ending")
	job := flag.String("job", "linux", "`name` of a job")
	list := flag.Bool("list", false, "print the steps and run none")
	flag.Parse()
	if err := run(ctx, *name, *job, *list); err != nil {
		fmt.Fprintln(os.Stderr, "workflow:", err)
		os.Exit(1)
	}
}

// folder is where the workflows are.
const folder = ".github/workflows"

// run runs the steps of a job in a clone of the repository in the working directory.
func run(ctx context.Context, name, jobName string, list bool) error {
	w, err := readWorkflow(filepath.Join(folder, name+".yml"))
	if err != nil {
		return err
	}
	steps, err := w.stepsOf(jobName)
	if err != nil {
		return err
	}
	if list {
		for _, step := range steps {
			fmt.Println(step.title())
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "changefeed-workflow-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	clone := filepath.Join(dir, "clone")
	if out, err := exec.CommandContext(ctx, "git", "clone", "--quiet", ".", clone).CombinedOutput(); err != nil {
		return fmt.Errorf("clone: %w: %s", err, out)
	}
	return runSteps(ctx, steps, clone)
}

// runSteps runs the steps in a directory, until one fails.
func runSteps(ctx context.Context, steps []step, dir string) error {
	for _, step := range steps {
		if step.Run == "" {
			fmt.Printf("=== left out: %s\n", step.title())
			continue
		}
		fmt.Printf("=== %s\n", step.title())
		began := time.Now()
		// the options of the shell that runners of the code host use
		shell := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.Run)
		shell.Dir, shell.Stdout, shell.Stderr = dir, os.Stdout, os.Stderr
		shell.Env = append(os.Environ(), "CI=true")
		for name, value := range step.Env {
			shell.Env = append(shell.Env, name+"="+value)
		}
		if err := shell.Run(); err != nil {
			return fmt.Errorf("step %q: %w", step.title(), err)
		}
		fmt.Printf("=== done in %v\n", time.Since(began).Round(time.Second))
	}
	return nil
}

// errMatrix means that a job runs on several systems.
var errMatrix = errors.New("it has a matrix: want a job without")

// stepsOf returns the steps of a job.
func (w *workflow) stepsOf(name string) ([]step, error) {
	job, ok := w.Jobs[name]
	if !ok {
		var names []string
		for other := range w.Jobs {
			names = append(names, other)
		}
		return nil, fmt.Errorf("the job is %q: want one of %s", name, strings.Join(names, ", "))
	}
	if job.Strategy != nil {
		return nil, fmt.Errorf("job %s: %w", name, errMatrix)
	}
	return job.Steps, nil
}
