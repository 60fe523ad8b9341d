package contexts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

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
const (
	commandLimit = 30 * time.Second
	pipeLimit    = time.Second
)

// Read returns the key. The errors contain no key.
func (k KeySource) Read(ctx context.Context) (key string, err error) {
	switch {
	case k.Variable != "":
		key = os.Getenv(k.Variable)
	case k.File != "":
		var text []byte
		if text, err = os.ReadFile(k.File); err != nil {
			return "", fmt.Errorf("read key: %w", err)
		}
		key = string(text)
	case len(k.Command) > 0:
		if key, err = runCommand(ctx, k.Command, commandLimit); err != nil {
			return "", err
		}
	default:
		key = k.Secret
	}
	if key = strings.TrimSpace(key); key == "" {
		return "", usage.Error{Err: fmt.Errorf("%s has no key: want the account's key there", k)}
	}
	return key, nil
}

// runCommand runs a command without a shell, and returns its output.
func runCommand(ctx context.Context, command []string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = pipeLimit
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no key within %v", limit)
	}
	if err == nil {
		return out.String(), nil
	}
	if said := strings.TrimSpace(errs.String()); said != "" {
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
