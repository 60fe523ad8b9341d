package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

// clients are the files with the versions of the clients, which are released together with the command.
var clients = []struct{ path, pattern string }{
	{"clients/python/pyproject.toml", `(?m)^version = "(.*)"$`},
	{"clients/python/src/changefeed/_version.py", `"(.*)"`},
	{"clients/node/package.json", `(?m)^  "version": "(.*)"`},
}

// breakFile lists the incompatible changes since the last release.
const breakFile = "api/next-major.txt"

// check reports everything that is missing before the sources can be released.
func check(repository, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("the version is %q: want one such as v0.1.0", version)
	}
	var missing []error
	if _, err := notesOf(repository, version); err != nil {
		missing = append(missing, err)
	}
	// a release candidate has the versions of the release: the registries never see it
	plain := strings.TrimPrefix(strings.TrimSuffix(version, semver.Prerelease(version)), "v")
	for _, client := range clients {
		text, err := os.ReadFile(filepath.Join(repository, client.path))
		if err != nil {
			missing = append(missing, err)
			continue
		}
		found := regexp.MustCompile(client.pattern).FindSubmatch(text)
		if found == nil || string(found[1]) != plain {
			missing = append(missing, fmt.Errorf("%s has version %q: want %s", client.path, found, plain))
		}
	}
	return errors.Join(append(missing, checkBreaks(repository, version))...)
}

// checkBreaks refuses incompatible changes in a version that must have none: a patch, and from 1.0 on a minor version.
func checkBreaks(repository, version string) error {
	text, err := os.ReadFile(filepath.Join(repository, breakFile))
	if err != nil {
		return err
	}
	parts := strings.Split(strings.TrimSuffix(version, semver.Prerelease(version)), ".")
	mayBreak := parts[2] == "0" && (parts[0] == "v0" || parts[1] == "0")
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !mayBreak {
			return fmt.Errorf("%s has %q: want a version that may break programs, or no incompatible change", breakFile, line)
		}
	}
	return nil
}

// notesOf returns the section of a version in the change log, without its heading.
func notesOf(repository, version string) (string, error) {
	text, err := os.ReadFile(filepath.Join(repository, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	plain := strings.TrimPrefix(strings.TrimSuffix(version, semver.Prerelease(version)), "v")
	heading := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(plain) + ` - (\d{4}-\d\d-\d\d|unreleased)$`)
	at := heading.FindStringSubmatchIndex(string(text))
	if at == nil {
		return "", fmt.Errorf("CHANGELOG.md has no line \"## %s - DATE\"", plain)
	}
	if date := string(text[at[2]:at[3]]); date == "unreleased" && semver.Prerelease(version) == "" {
		return "", fmt.Errorf("CHANGELOG.md says that %s is unreleased: want its date", plain)
	}
	rest := string(text[at[1]:])
	if next := strings.Index(rest, "\n## "); next >= 0 {
		rest = rest[:next]
	}
	return strings.TrimSpace(rest) + "\n", nil
}
