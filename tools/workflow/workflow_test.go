package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pinned is an action at a commit, not at a tag that somebody can move.
var pinned = regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40}$`)

// mayWrite are the rights beyond reading, by workflow and job.
var mayWrite = map[string][]string{
	"release/draft":    {"attestations", "contents", "id-token", "packages"},
	"publish/packages": {"id-token"},
}

// A workflow has only the rights that it needs, runs only actions at fixed commits, and ends.
func TestWorkflowsHaveFewRightsAndPinnedActions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*.yml"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%d workflows, %v: want test, nightly, release and publish", len(files), err)
	}
	for _, file := range files {
		w, err := readWorkflow(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yml")
		if !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
			t.Errorf("%s: permissions are %v: want contents: read for all jobs", name, w.Permissions)
		}
		for jobName, job := range w.Jobs {
			where := name + "/" + jobName
			var writes []string
			for right, level := range job.Permissions {
				if level == "write" {
					writes = append(writes, right)
				}
			}
			if slices.Sort(writes); !slices.Equal(writes, mayWrite[where]) {
				t.Errorf("%s may write %v: want %v", where, writes, mayWrite[where])
			}
			if job.Timeout == 0 || len(job.Steps) == 0 {
				t.Errorf("%s: a timeout of %d minutes, %d steps", where, job.Timeout, len(job.Steps))
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s uses %s: want a commit of 40 digits", where, step.Uses)
				}
				if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
					t.Errorf("%s: checkout leaves its token to all later steps: want persist-credentials: false", where)
				}
				// text of others in a command is code of others
				if strings.Contains(step.Run, "${{ github.") {
					t.Errorf("%s: %q has an expression of the event: want an environment variable", where, step.title())
				}
			}
		}
	}
}

// Each target of make that a workflow names exists.
func TestWorkflowsNameTargetsThatExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile(`\bmake ([a-z-]+)`)
	named := 0
	files, _ := filepath.Glob(filepath.Join("..", "..", folder, "*.yml"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range target.FindAllStringSubmatch(string(text), -1) {
			named++
			if !strings.Contains(string(makefile), "\n"+match[1]+": ") {
				t.Errorf("%s runs make %s, which does not exist", filepath.Base(file), match[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("the workflows name %d targets", named)
	}
}

// Steps run in order, with the options of the code host's shell, and the first failure ends them.
func TestStepsRunUntilOneFails(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("this needs bash")
	}
	dir := t.TempDir()
	steps := []step{
		{Uses: "actions/checkout@v1"},
		{Run: "echo one >made\necho $WORD >>made", Env: map[string]string{"WORD": "two"}},
		{Name: "third", Run: "false | true\necho three >>made"},
		{Run: "echo four >>made"},
	}
	err := runSteps(t.Context(), steps, dir)
	if err == nil || !strings.Contains(err.Error(), `step "third"`) {
		t.Errorf("got %v, want the failure of the third step", err)
	}
	made, err := os.ReadFile(filepath.Join(dir, "made"))
	if string(made) != "one\ntwo\n" {
		t.Errorf("the steps have made %q, %v", made, err)
	}
}
