package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// shells are the shells for which the command writes completions: the file in archives, and its place in packages.
var shells = []struct{ name, file, place string }{
	{"bash", "changefeed.bash", "usr/share/bash-completion/completions/changefeed"},
	{"zsh", "_changefeed", "usr/share/zsh/vendor-completions/_changefeed"},
	{"fish", "changefeed.fish", "usr/share/fish/vendor_completions.d/changefeed.fish"},
	{"powershell", "changefeed.ps1", ""},
}

// texts are the files of the repository in archives and, below usr/share/doc/changefeed, in packages.
var texts = []struct{ source, name, packaged string }{
	{"LICENSE", "LICENSE", "copyright"},
	{"cmd/changefeed/internal/notices/notices.txt", "NOTICES.txt", "NOTICES.txt"},
	{"README.md", "README.md", "README.md"},
	{"CHANGELOG.md", "CHANGELOG.md", "CHANGELOG.md"},
}

// systemdUnits is where the units of systemd are, if the repository has some.
const systemdUnits = "deploy/systemd/*.service"

// stage collects everything but the binary: DIR/archive is what archives have, and DIR/root is the tree of packages.
func stage(ctx context.Context, repository, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear %s: %w", dir, err)
	}
	s := &staging{repository: repository, dir: dir}
	s.stageTexts()
	s.stageUnits()
	scratch, err := os.MkdirTemp("", "changefeed-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	binary := filepath.Join(scratch, "changefeed")
	// not go run: only go build writes the tag into the binary, and the manual pages name the version
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-o", binary, "./cmd/changefeed")
	build.Dir, build.Stderr, build.Env = repository, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the command: %w", err)
	}
	s.stageManual(ctx, binary, filepath.Join(scratch, "man"))
	for _, shell := range shells {
		text, err := exec.CommandContext(ctx, binary, "completion", shell.name).Output()
		s.fail(err)
		s.write("archive/completions/"+shell.file, text)
		if shell.place != "" {
			s.write("root/"+shell.place, text)
		}
	}
	return s.err
}

// staging writes files below dir and keeps the first error.
type staging struct {
	repository, dir string
	err             error
}

// fail keeps the first error.
func (s *staging) fail(err error) {
	if s.err == nil && err != nil {
		s.err = fmt.Errorf("stage: %w", err)
	}
}

// write writes a file, and the folders above it.
func (s *staging) write(name string, text []byte) {
	path := filepath.Join(s.dir, filepath.FromSlash(name))
	s.fail(os.MkdirAll(filepath.Dir(path), 0o755))
	s.fail(os.WriteFile(path, text, 0o644))
}

// stageTexts copies licences and texts for people.
func (s *staging) stageTexts() {
	for _, t := range texts {
		text, err := os.ReadFile(filepath.Join(s.repository, t.source))
		s.fail(err)
		s.write("archive/"+t.name, text)
		s.write("root/usr/share/doc/changefeed/"+t.packaged, text)
	}
}

// stageUnits copies the units of systemd. A package enables and starts none of them.
func (s *staging) stageUnits() {
	units, err := filepath.Glob(filepath.Join(s.repository, systemdUnits))
	s.fail(err)
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		s.fail(err)
		s.write("root/usr/lib/systemd/system/"+filepath.Base(unit), text)
	}
}

// stageManual writes the manual pages, compressed in packages.
func (s *staging) stageManual(ctx context.Context, binary, scratch string) {
	s.fail(exec.CommandContext(ctx, binary, "man", scratch).Run())
	pages, err := os.ReadDir(scratch)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.fail(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(scratch, page.Name()))
		s.fail(err)
		s.write("archive/man/"+page.Name(), text)
		s.write("root/usr/share/man/man1/"+page.Name()+".gz", s.compress(text))
	}
	if len(pages) == 0 || !strings.HasPrefix(pages[0].Name(), "changefeed") {
		s.fail(fmt.Errorf("the command has written %d manual pages", len(pages)))
	}
}

// compress returns the same bytes for the same text: the header has no time and no name.
func (s *staging) compress(text []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	s.fail(err)
	_, err = z.Write(text)
	s.fail(err)
	s.fail(z.Close())
	return b.Bytes()
}
