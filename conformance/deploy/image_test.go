// The tests decode the manifests of deploy into the types of those who read them, and have BuildKit's parser read the
// Dockerfile, whose steps they run.
package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// stages parses the Dockerfile as BuildKit does.
func stages(t *testing.T) ([]instructions.Stage, []instructions.ArgCommand) {
	t.Helper()
	text, err := os.ReadFile(deployed + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	read, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(read.Warnings) > 0 {
		t.Errorf("the parser warns: %v", read.Warnings)
	}
	all, args, err := instructions.Parse(read.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all, args
}

// The image is built of stages that exist, and its last one runs as nobody.
func TestTheDockerfileIsParsedByBuildKit(t *testing.T) {
	all, args := stages(t)
	names := map[string]bool{"${GO_IMAGE}": true, "${BASE_IMAGE}": true}
	if len(args) != 2 {
		t.Errorf("there are %d arguments before the first stage, want the two images", len(args))
	}
	for _, s := range all {
		if !names[s.BaseName] {
			t.Errorf("the stage %q is from %q, which does not exist before it", s.Name, s.BaseName)
		}
		for _, c := range s.Commands {
			if from, isCopy := c.(*instructions.CopyCommand); isCopy && from.From != "" && !names[from.From] {
				t.Errorf("COPY is from %q, which does not exist before it", from.From)
			}
		}
		names[s.Name] = true
	}
	if !names["release"] || all[len(all)-1].BaseName != "base" {
		t.Error("want a stage for a release, and the image from the sources as the last one")
	}
}

// context copies what a builder gets of the repository: all that .dockerignore does not exclude.
func copyContext(t *testing.T, to string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ignore, err := os.Open(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	defer ignore.Close()
	patterns, err := ignorefile.ReadAll(ignore)
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	files, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.Lines(string(files)) {
		name = strings.TrimSpace(name)
		isIgnored, err := matcher.MatchesOrParentMatches(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if isIgnored || os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The RUN steps work on what the COPY steps bring, in an empty folder, and the binary is static and starts.
func TestTheStepsOfTheImageRun(t *testing.T) {
	context, src, out := t.TempDir(), t.TempDir(), t.TempDir()
	copyContext(t, context)
	all, _ := stages(t)
	ran := 0
	for _, c := range all[0].Commands {
		switch c := c.(type) {
		case *instructions.CopyCommand:
			for _, from := range c.SourcePaths {
				info, err := os.Stat(filepath.Join(context, from))
				if err != nil {
					t.Fatal(err)
				}
				if info.IsDir() {
					err = os.CopyFS(src, onlyNew{os.DirFS(filepath.Join(context, from)), src})
				} else {
					err = copyFile(filepath.Join(context, from), filepath.Join(src, from))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		case *instructions.RunCommand:
			line := strings.ReplaceAll(strings.Join(c.CmdLine, " "), "/out/", out+"/")
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", line)
			cmd.Dir, cmd.Env = src, append(os.Environ(), "TAGS=", "GOFLAGS=-buildvcs=false")
			if said, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", line, err, said)
			}
			ran++
		}
	}
	if ran != 2 {
		t.Errorf("%d steps have run, want the download and the build", ran)
	}
	version := exec.CommandContext(t.Context(), filepath.Join(out, "changefeed"), "version")
	version.Env = []string{} // as in an image without a shell
	said, err := version.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "changefeed") {
		t.Errorf("the binary says %q, %v", said, err)
	}
	// ldd fails for a static binary, and says so.
	linked, _ := exec.CommandContext(t.Context(), "ldd", filepath.Join(out, "changefeed")).CombinedOutput()
	if !strings.Contains(string(linked), "not a dynamic executable") {
		t.Errorf("the binary is not static: %s", linked)
	}
}
