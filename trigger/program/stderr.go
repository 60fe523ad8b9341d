package program

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// stderr passes on what a program writes to standard error and keeps the end of it, because the last line mostly says why
// the program has failed.
type stderr struct {
	to     io.Writer // nil discards
	write  *os.File  // the end that the program has
	closed chan struct{}

	mu  sync.Mutex
	end []byte
}

const (
	maxReason  = 1 << 10                // bytes of the last line
	stderrTime = 100 * time.Millisecond // for what the program wrote last to arrive
)

// newStderr gives a program its standard error.
func newStderr(cmd *exec.Cmd, to io.Writer) (*stderr, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stderr{to: to, write: write, closed: make(chan struct{})}
	cmd.Stderr = write
	go func() { // it goes on alone: what the program leaves behind may write for as long as it runs
		defer close(s.closed)
		defer read.Close()
		_, _ = io.Copy(s, read)
		if lines, ok := to.(*lineLog); ok {
			lines.end()
		}
	}()
	return s, nil
}

// started closes our copy of the program's end, whether or not the program was started.
func (s *stderr) started() { s.write.Close() }

// Write implements [io.Writer].
func (s *stderr) Write(p []byte) (int, error) {
	s.mu.Lock()
	s.end = append(s.end, p...)
	if more := len(s.end) - 2*maxReason; more > 0 { // the last line may be blank
		s.end = append(s.end[:0], s.end[more:]...)
	}
	s.mu.Unlock()
	if s.to != nil {
		_, _ = s.to.Write(p) // an error here is none of the program
	}
	return len(p), nil
}

// ended waits until all that the program wrote before it ended was passed on.
func (s *stderr) ended() {
	select {
	case <-s.closed:
	case <-time.After(stderrTime): // others have it still
	}
}

// reason is the last line, or the end of it; empty if there is none.
func (s *stderr) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := bytes.TrimSpace(s.end)
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	line = line[max(0, len(line)-maxReason):]
	return strings.ToValidUTF8(string(line), "")
}
