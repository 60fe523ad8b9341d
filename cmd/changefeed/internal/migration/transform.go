package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/child"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// A transform is a program that is started for many documents at once. It reads a document a line, without system
// properties, and writes a line for each: the document for the target, an array of several, or null or [] for none.
type transform struct {
	command []string
	jobs    chan struct{} // as many as programs may run at once
}

// output is what a transform makes of a document.
type output struct {
	documents [][]byte
	err       error
}

const (
	maxTransformed = 1000 // documents for one start of the program
	maxPrograms    = 4    // at once
	transformTime  = 5 * time.Minute
)

// newTransform finds the program.
func newTransform(command []string) (*transform, error) {
	path, err := exec.LookPath(command[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return nil, usage.Missing{Err: fmt.Errorf("COMMAND is %s: there is no such program", command[0])}
	case err != nil:
		return nil, usage.Error{Err: fmt.Errorf("COMMAND is %s: %w", command[0], err)}
	}
	return &transform{append([]string{path}, command[1:]...), make(chan struct{}, maxPrograms)}, nil
}

// run transforms documents. If the program fails on many, they are halved until the document at fault is alone. The
// error is that of ctx.
func (t *transform) run(ctx context.Context, bodies [][]byte, out []output) error {
	var work sync.WaitGroup
	for from := 0; from < len(bodies); from += maxTransformed {
		to := min(from+maxTransformed, len(bodies))
		select {
		case t.jobs <- struct{}{}:
		case <-ctx.Done():
			work.Wait()
			return context.Cause(ctx)
		}
		work.Go(func() {
			defer func() { <-t.jobs }()
			t.divide(ctx, bodies[from:to], out[from:to])
		})
	}
	work.Wait()
	return context.Cause(ctx)
}

// divide transforms documents, or their halves if that fails.
func (t *transform) divide(ctx context.Context, bodies [][]byte, out []output) {
	if len(bodies) == 0 || ctx.Err() != nil {
		return
	}
	err := t.start(ctx, bodies, out)
	switch half := len(bodies) / 2; {
	case err == nil:
	case half == 0:
		out[0] = output{err: err}
	default:
		t.divide(ctx, bodies[:half], out[:half])
		t.divide(ctx, bodies[half:], out[half:])
	}
}

// start starts the program on documents.
func (t *transform) start(ctx context.Context, bodies [][]byte, out []output) error {
	ctx, cancel := context.WithTimeout(ctx, transformTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.command[0], t.command[1:]...)
	var input, answer, complaint bytes.Buffer
	for _, body := range bodies {
		if err := json.Compact(&input, body); err != nil {
			return err
		}
		input.WriteByte('\n')
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &input, &answer, &complaint
	cmd.SysProcAttr = child.Apart()
	cmd.Cancel = func() error { child.Kill(cmd.Process); return nil }
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("the transform fails: %w%s", err, lastLine(complaint.String()))
	}
	return readAnswers(answer.Bytes(), out)
}

// readAnswers reads a line for each document.
func readAnswers(text []byte, out []output) error {
	lines := bytes.Split(bytes.TrimRight(text, "\r\n"), []byte("\n"))
	if len(text) == 0 {
		lines = nil
	}
	switch {
	case len(lines) < len(out):
		return errNoAnswer
	case len(lines) > len(out):
		return fmt.Errorf("the transform has written %d lines for %d documents: want a line for each, with an array for "+
			"several documents", len(lines), len(out))
	}
	for i, line := range lines {
		var err error
		if out[i].documents, err = readAnswer(bytes.TrimSpace(line)); err != nil {
			return err
		}
	}
	return nil
}

// readAnswer reads the line for a document.
func readAnswer(line []byte) (documents [][]byte, err error) {
	if _, ok := rawjson.Check(line); !ok {
		return nil, fmt.Errorf("the transform has written %q: want JSON", terminal.Shorten(string(line), 60))
	}
	switch line[0] {
	case 'n':
		return nil, nil
	case '{':
		return [][]byte{line}, nil
	case '[':
		for element := range rawjson.Elements(line) {
			if element[0] != '{' {
				return nil, fmt.Errorf("the transform has written an array with %s: want documents",
					terminal.Shorten(string(element), 60))
			}
			documents = append(documents, element)
		}
		return documents, nil
	}
	return nil, fmt.Errorf("the transform has written %s: want a document, an array of documents, or null",
		terminal.Shorten(string(line), 60))
}

// lastLine returns the last line of what a program has said, for an error.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return ": " + terminal.Shorten(terminal.OneLine(text[strings.LastIndexByte(text, '\n')+1:]), 200)
}
