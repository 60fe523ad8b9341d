package contexts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// A KeySource is the place of a key. At most one field is set; the zero value is no key.
type KeySource struct {
	Variable string   `json:"env,omitempty"`     // name of an environment variable
	File     string   `json:"file,omitempty"`    // absolute path
	Command  []string `json:"command,omitempty"` // program and arguments; the program writes the key
	Secret   string   `json:"secret,omitempty"`  // the key itself
}

// IsZero reports whether there is no key.
func (k KeySource) IsZero() bool {
	return k.Variable == "" && k.File == "" && len(k.Command) == 0 && k.Secret == ""
}

// String names the place of the key. The text contains neither the key nor the arguments of a command, which may be
// secrets.
func (k KeySource) String() string {
	switch {
	case k.Variable != "":
		return "$" + k.Variable
	case k.File != "":
		return "file " + k.File
	case len(k.Command) > 0:
		return "command " + k.Command[0]
	case k.Secret != "":
		return "stored in the file of contexts"
	}
	return ""
}

// commandLimit is how long a command may take, and pipeLimit how long its children may then hold its output.
// outputLimit is how many bytes a command may write, and saidLimit how much of its standard error an error quotes.
const (
	commandLimit = 30 * time.Second
	pipeLimit    = time.Second
	outputLimit  = 64 << 10
	saidLimit    = 500
)

// Read returns the key. The errors contain no key.
func (k KeySource) Read(ctx context.Context) (key string, err error) {
	switch {
	case k.Variable != "":
		key = os.Getenv(k.Variable)
	case k.File != "":
		if key, err = readFile(ctx, k.File); err != nil {
			return "", fmt.Errorf("read key: %w", err)
		}
	case len(k.Command) > 0:
		if key, err = runCommand(ctx, k.Command, commandLimit); err != nil {
			return "", err
		}
	default:
		key = k.Secret
	}
	switch key = strings.TrimSpace(key); {
	case key == "":
		return "", usage.Error{Err: errors.New("there is no key: want the account's key there")}
	case strings.ContainsAny(key, "\r\n"):
		return "", usage.Error{Err: errors.New("there are several lines: want the account's key alone, in one line")}
	}
	return key, nil
}

// readFile reads the file of a key.
func readFile(ctx context.Context, path string) (string, error) {
	f, err := terminal.Open(ctx, path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text := limited{most: outputLimit}
	_, err = io.Copy(&text, f)
	return text.String(), err
}

// limited keeps written bytes up to a limit, and refuses more.
type limited struct {
	kept bytes.Buffer // not embedded, so that io.Copy has no way around Write
	most int
	over error // more was written
}

// String returns the written text.
func (l *limited) String() string { return l.kept.String() }

// Write implements [io.Writer].
func (l *limited) Write(p []byte) (int, error) {
	if l.kept.Len()+len(p) > l.most {
		l.over = fmt.Errorf("there are more than %d bytes: want the account's key alone", l.most)
		return 0, l.over
	}
	return l.kept.Write(p)
}

// beginning keeps the beginning of the written text.
type beginning struct {
	kept bytes.Buffer
	most int
}

// Write implements [io.Writer].
func (b *beginning) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), b.most-b.kept.Len())])
	return len(p), nil
}

// runCommand runs a command without a shell, and returns the output.
func runCommand(ctx context.Context, command []string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = pipeLimit
	out, errs := limited{most: outputLimit}, beginning{most: saidLimit}
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	switch {
	case out.over != nil: // the command has failed for this reason
		err = out.over
	case errors.Is(err, exec.ErrWaitDelay): // the command has succeeded, and left a child that goes on
		err = nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no key within %v", limit)
	}
	if err == nil {
		return out.String(), nil
	}
	if said := terminal.OneLine(errs.kept.String()); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return "", fmt.Errorf("run key command %s: %w", command[0], err)
}

// ParseCommand splits a command into program and arguments. Quotes keep blanks within an argument.
func ParseCommand(text string) (words []string, err error) {
	var word strings.Builder
	var quote rune // 0 outside quotes
	begun := false
	for _, r := range text {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case r == quote:
			quote = 0
		case quote == 0 && strings.ContainsRune(" \t\n", r):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("the quote %c has no end", quote)
	case len(words) == 0 || words[0] == "":
		return nil, errors.New("there is no program")
	}
	// A relative path would mean another program in another directory.
	if strings.ContainsRune(words[0], filepath.Separator) {
		words[0], err = filepath.Abs(words[0])
	}
	return words, err
}
