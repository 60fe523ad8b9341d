package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// allPlatforms are those for which a release has a binary.
var allPlatforms = []string{
	"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64", "windows_arm64",
}

// verification is the check of one release.
type verification struct {
	ctx       context.Context
	dir       string
	platforms []string
	version   string // without the v
	tag       string
	commit    string
	scratch   string
	mistakes  []error
}

// verify opens every file of a release: archives, packages, lists of modules and checksums. It runs the binaries that
// this machine can run. Platforms are such as linux/amd64; without any, the release must have all.
func verify(ctx context.Context, dir string, platforms []string) error {
	v := &verification{ctx: ctx, dir: dir, platforms: allPlatforms}
	if len(platforms) > 0 {
		v.platforms = nil
	}
	for _, platform := range platforms {
		platform = strings.Replace(platform, "/", "_", 1)
		if !slices.Contains(allPlatforms, platform) {
			return fmt.Errorf("the platform is %q: want one such as linux/amd64", platform)
		}
		v.platforms = append(v.platforms, platform)
	}
	if err := v.readMetadata(); err != nil {
		return err
	}
	var err error
	if v.scratch, err = os.MkdirTemp("", "changefeed-verify-"); err != nil {
		return err
	}
	defer os.RemoveAll(v.scratch)
	v.checkSums()
	for _, platform := range v.platforms {
		binary := v.checkArchive(platform)
		v.checkModules(platform, binary)
		if system, arch, _ := strings.Cut(platform, "_"); system == "linux" {
			v.checkDeb(arch)
			v.checkRPM(arch)
		}
	}
	if len(v.mistakes) == 0 {
		fmt.Printf("== %s is whole: version %s, commit %s, %d platforms\n", dir, v.version, v.commit, len(v.platforms))
	}
	return errors.Join(v.mistakes...)
}

// blame adds a mistake, if there is one.
func (v *verification) blame(where string, err error) {
	if err != nil {
		v.mistakes = append(v.mistakes, fmt.Errorf("%s: %w", where, err))
	}
}

// readMetadata reads what GoReleaser says of its release.
func (v *verification) readMetadata() error {
	text, err := os.ReadFile(filepath.Join(v.dir, "metadata.json"))
	if err != nil {
		return err
	}
	var m struct{ Version, Tag, Commit string }
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("read metadata.json: %w", err)
	}
	if v.version, v.tag, v.commit = m.Version, m.Tag, m.Commit; v.version == "" || v.tag == "" || v.commit == "" {
		return fmt.Errorf("metadata.json has version %q, tag %q and commit %q: want all three", m.Version, m.Tag, m.Commit)
	}
	return nil
}

// isHere reports whether this machine can run the binaries of a platform.
func isHere(platform string) bool { return platform == runtime.GOOS+"_"+runtime.GOARCH }

// sumFile has the checksums of all files.
const sumFile = "SHA256SUMS"

// checkSums compares the checksums, and looks for files that have none.
func (v *verification) checkSums() {
	f, err := os.Open(filepath.Join(v.dir, sumFile))
	if err != nil {
		v.blame(sumFile, err)
		return
	}
	defer f.Close()
	var listed []string
	for s := bufio.NewScanner(f); s.Scan(); {
		sum, name, _ := strings.Cut(s.Text(), "  ")
		listed = append(listed, name)
		got, err := v.sumOf(name)
		if err == nil && got != sum {
			err = fmt.Errorf("its checksum is %s: want %s", got, sum)
		}
		v.blame(name, err)
	}
	entries, err := os.ReadDir(v.dir)
	v.blame(v.dir, err)
	for _, entry := range entries {
		ending := filepath.Ext(entry.Name())
		if slices.Contains([]string{".gz", ".zip", ".deb", ".rpm", ".json"}, ending) && strings.Contains(entry.Name(),
			v.version) && !slices.Contains(listed, entry.Name()) {
			v.blame(entry.Name(), errors.New("it has no checksum"))
		}
	}
	fmt.Printf("%d checksums\n", len(listed))
}

// sumOf returns the checksum of a file of the release: wheels and npm packages are beside its folder.
func (v *verification) sumOf(name string) (string, error) {
	for _, folder := range []string{".", "../wheels", "../npm"} {
		f, err := os.Open(filepath.Join(v.dir, folder, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return "", err
		}
		return hex.EncodeToString(h.Sum(nil)), nil
	}
	return "", errors.New("the file is missing")
}
