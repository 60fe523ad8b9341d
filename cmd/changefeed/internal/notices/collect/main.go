// Collect writes the licences and notices of all software linked into the command to a file:
//
//	go run ./cmd/changefeed/internal/notices/collect cmd/changefeed/internal/notices/notices.txt
//
// Collect asks the go command for the packages of each build. For each package, these are the files with a licence or
// a notice from the package's directory up to the top of its module, because a package whose licence differs from its
// module's has its own file.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "collect: FILE is missing: want the file to write")
		os.Exit(2)
	}
	if err := collect(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "collect:", err)
		os.Exit(1)
	}
}

const command = "./cmd/changefeed"

// head begins the file.
const head = `changefeed is distributed under the MIT licence. It contains the software that is listed here, in some builds not all
of it. Each list of modules, with the files in them, is followed by what these files say.
`

// rule separates two texts.
var rule = "\n" + strings.Repeat("=", 80) + "\n"

// builds returns the environments of all builds whose packages may differ. Without cgo, another package is used for
// compression.
func builds() (all [][]string) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, cgo := range []string{"0", "1"} {
			for _, tags := range []string{"", "brokers"} {
				all = append(all, []string{"GOOS=" + system, "GOARCH=amd64", "CGO_ENABLED=" + cgo, "GOFLAGS=-tags=" +
					tags})
			}
		}
	}
	return all
}

// linked is a linked package of another module.
type linked struct {
	Dir    string
	Module *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// collect writes the file.
func collect(ctx context.Context, to string) error {
	texts := map[string][]string{} // from each text to its files, in the form of the list
	for _, env := range builds() {
		packages, err := list(ctx, env)
		if err != nil {
			return err
		}
		for _, p := range packages {
			if err := p.add(texts); err != nil {
				return err
			}
		}
	}
	if err := addGo(ctx, texts); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(head)
	order := slices.SortedFunc(maps.Keys(texts), func(x, y string) int { return slices.Compare(texts[x], texts[y]) })
	for _, text := range order {
		b.WriteString(rule)
		for _, file := range texts[text] {
			b.WriteString("\n" + file)
		}
		b.WriteString("\n\n" + text + "\n")
	}
	return os.WriteFile(to, []byte(b.String()), 0o644)
}

// list returns the packages of other modules that a build links.
func list(ctx context.Context, env []string) (all []linked, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Module", command)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages of %v: %w", env, err)
	}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p linked
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("list packages of %v: %w", env, err)
		}
		if p.Module != nil && !p.Module.Main { // packages of the standard library have no module
			all = append(all, p)
		}
	}
}

// legal matches the names of files with a licence or a notice.
var legal = regexp.MustCompile(`(?i)^(un)?(licen[sc]es?|copying|copyright|notices?|patents)([.-].*)?$`)

// add adds the files from the directory of a package up to the top of its module. If there are none, the result is an
// error.
func (p linked) add(texts map[string][]string) error {
	found := false
	for dir := p.Dir; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() || !legal.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			found = true
			path, err := filepath.Rel(p.Module.Dir, filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			if err := addFile(texts, p.Module.Path+" "+p.Module.Version+": "+filepath.ToSlash(path),
				filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		if dir == p.Module.Dir {
			break
		}
	}
	if !found {
		return fmt.Errorf("module %s %s has no file with a licence", p.Module.Path, p.Module.Version)
	}
	return nil
}

// addGo adds the licence of Go and its standard library.
func addGo(ctx context.Context, texts map[string][]string) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find Go: %w", err)
	}
	for _, name := range []string{"LICENSE", "PATENTS"} {
		if err := addFile(texts, "Go and its standard library: "+name, filepath.Join(strings.TrimSpace(string(root)),
			name)); err != nil {
			return err
		}
	}
	return nil
}

// addFile adds a file to the list of files with the same text.
func addFile(texts map[string][]string, name, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := strings.Trim(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n")
	if files := texts[text]; !slices.Contains(files, name) {
		texts[text] = append(files, name)
		slices.Sort(texts[text])
	}
	return nil
}
