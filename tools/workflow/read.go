package main

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// workflow is the part of a workflow that this program and its tests need.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]job
}

// job is a job of a workflow.
type job struct {
	Permissions map[string]string
	Strategy    map[string]any
	Timeout     int `yaml:"timeout-minutes"`
	Steps       []step
}

// step is a command, or an action of others.
type step struct {
	Name, Run, Uses string
	Env             map[string]string
	With            map[string]any
}

// readWorkflow reads the file of a workflow.
func readWorkflow(path string) (*workflow, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read workflow: %w", err)
	}
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		return nil, fmt.Errorf("read workflow %s: %w", path, err)
	}
	return &w, nil
}

// title returns the name of a step, or the first line of what it does.
func (s step) title() string {
	if s.Name != "" {
		return s.Name
	}
	first, _, _ := strings.Cut(s.Run+s.Uses, "\n")
	return first
}
