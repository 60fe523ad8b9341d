package soak_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/changefeed/internal/child"
)

// process is a process of the system, which is started again after each kill.
type process struct {
	name string
	args []string
	env  []string
	dir  string // of its log
	ui   string // URL of its dashboard

	mu      sync.Mutex
	cmd     *exec.Cmd
	started int
}

// start starts the process.
func (p *process) start(binary string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(p.dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(binary, p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = log, log, child.Apart()
	p.started++
	return p.cmd.Start()
}

// signal sends a signal to the process alone, and not to its program.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Signal(s)
}

// kill ends the process by kill -9, and waits for its end.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = p.cmd.Wait() // killed, as wanted
	return nil
}

// end ends the process in order. An error is that it did not end well.
func (p *process) end() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	over := time.AfterFunc(time.Minute, func() { _ = p.signal(syscall.SIGKILL) })
	defer over.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s has not ended well: %w", p.name, err)
	}
	return nil
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// resident is the memory of a process in bytes.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return 0, fmt.Errorf("process %d has no memory: it has ended", pid)
	}
	kilobytes, err := strconv.ParseFloat(fields[0], 64)
	return kilobytes * 1024, err
}

// openFiles counts the open files of a process.
func openFiles(pid int) (float64, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return float64(len(entries)), err
}
