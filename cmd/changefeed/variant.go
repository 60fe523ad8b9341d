package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The names of the handlers of run and relay for the other instances of a unit, see Options.Variant of package
// changefeed: the same for the same command or broker, and without the arguments, which may be secret.

const (
	maxHandler  = 160 // bytes of the name of a program or a broker
	shownDigits = 8   // of a hash
)

// interpreters are programs whose first argument is the file with the handler. Their own content says nothing.
var interpreters = regexp.MustCompile(`^(sh|bash|dash|zsh|ksh|python[0-9.]*|node|ruby|perl|php|deno|bun|pwsh|java)$`)

// handlerVariant names the handler of run, which is a command or a URL.
func handlerVariant(args []string) string {
	if isURL(args) {
		return brokerVariant(args[0], "webhook")
	}
	return commandVariant(args)
}

// commandVariant names a command: the file name of its program or script, and a hash of the content of that file and
// of all arguments. If the file cannot be read, the hash is that of the command alone. Without the directory, the name
// is the same on all machines.
func commandVariant(command []string) string {
	h := sha256.New()
	for _, arg := range command[1:] {
		fmt.Fprintf(h, "%q ", arg)
	}
	name := filepath.Base(command[0])
	path, err := exec.LookPath(command[0])
	if interpreters.MatchString(name) {
		err = os.ErrNotExist
		if i := slices.IndexFunc(command[1:], isFile); i >= 0 {
			path, err = command[1+i], nil
			name = filepath.Base(path)
		}
	}
	if err == nil {
		addContent(h, path)
	}
	return cut(name) + " " + hex.EncodeToString(h.Sum(nil))[:shownDigits]
}

// isFile reports whether an argument names a file.
func isFile(arg string) bool {
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular()
}

// addContent adds the content of a file to a hash.
func addContent(h io.Writer, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = io.Copy(h, f) // for an unreadable file, the hash covers the arguments
}

// brokerVariant names a broker: its scheme and host, with a hash of the path, without a user and parameters. The path
// of a webhook may be secret, too.
func brokerVariant(to, typ string) string {
	name, _, _ := strings.Cut(to, "?")
	if u, err := url.Parse(to); err == nil && u.Host != "" {
		name = u.Scheme + "://" + u.Host
		if path := strings.Trim(u.Path, "/"); path != "" {
			hash := sha256.Sum256([]byte(path))
			name += " " + hex.EncodeToString(hash[:])[:shownDigits]
		}
	}
	return cut(typ + " to " + name)
}

// cut bounds a name.
func cut(name string) string {
	if len(name) <= maxHandler {
		return name
	}
	return strings.ToValidUTF8(name[:maxHandler], "")
}
