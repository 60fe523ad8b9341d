package child

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// An Output passes what a program prints on and keeps the end, because the last line usually says why the program has
// failed.
type Output struct {
	to     io.Writer // nil discards
	write  *os.File  // the program's end of the pipe
	closed chan struct{}

	mu  sync.Mutex
	end []byte
}

const (
	maxReason  = 1 << 10                // bytes of the last line
	outputTime = 100 * time.Millisecond // how long the program's last output may take to arrive
)

// NewStderr connects a program's standard error.
func NewStderr(cmd *exec.Cmd, to io.Writer) (*Output, error) {
	o, err := newOutput(to)
	if err == nil {
		cmd.Stderr = o.write
	}
	return o, err
}

// NewStdout connects a program's standard output.
func NewStdout(cmd *exec.Cmd, to io.Writer) (*Output, error) {
	o, err := newOutput(to)
	if err == nil {
		cmd.Stdout = o.write
	}
	return o, err
}

func newOutput(to io.Writer) (*Output, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &Output{to: to, write: write, closed: make(chan struct{})}
	go func() { // runs on alone, because the program's processes may write for as long as they run
		defer close(s.closed)
		defer read.Close()
		_, _ = io.Copy(s, read)
		if lines, ok := to.(*LineLog); ok {
			lines.endLine()
		}
	}()
	return s, nil
}

// CloseOurEnd closes our copy of the program's end, whether or not the program was started.
func (s *Output) CloseOurEnd() { s.write.Close() }

// Write implements [io.Writer].
func (s *Output) Write(p []byte) (int, error) {
	s.mu.Lock()
	s.end = append(s.end, p...)
	if more := len(s.end) - 2*maxReason; more > 0 { // the last line may be blank
		s.end = append(s.end[:0], s.end[more:]...)
	}
	s.mu.Unlock()
	if s.to != nil {
		_, _ = s.to.Write(p) // an error here is not the program's fault
	}
	return len(p), nil
}

// AwaitEnd waits until the last output of the program was passed on.
func (s *Output) AwaitEnd() {
	select {
	case <-s.closed:
	case <-time.After(outputTime): // other processes still have the pipe
	}
}

// LastLine returns the last line, or the end of a long line; empty if there is no line.
func (s *Output) LastLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := bytes.TrimSpace(s.end)
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	line = line[max(0, len(line)-maxReason):]
	return strings.ToValidUTF8(string(line), "")
}
