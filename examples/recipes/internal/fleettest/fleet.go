// Package fleettest runs a recipe as processes of its own, and kills them at random moments. The processes are the test
// binary, so the recipe need not be linked again.
package fleettest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
)

// StartAccount starts an account with the database shop, the containers, and the lease container "leases".
func StartAccount(t *testing.T, specs ...docstore.ContainerSpec) *cosmostest.Server {
	t.Helper()
	server := cosmostest.NewTestServer(t)
	if _, err := server.DB.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	for _, spec := range append(specs, docstore.LeaseSpec("leases")) {
		spec.Database = "shop"
		if _, err := server.DB.CreateContainer(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	return server
}

const asRecipe = "KILLTEST_RUN_AS_RECIPE"

// RunAs runs the tests of a recipe or, in the processes of a [Fleet], the main function of the recipe. So the
// recipe need not be linked again.
func RunAs(m *testing.M, program func()) {
	if os.Getenv(asRecipe) != "" {
		program()
		return
	}
	m.Run()
}

// Fleet is a set of running processes of the recipe under test.
type Fleet struct {
	args   []string
	env    []string
	folder string // working directory

	Running []*Process
	wrote   chan *Process // which has just written a line, so its position may not be stored yet
}

// Process is a process, and the end of what it has written.
type Process struct {
	command *exec.Cmd
	wrote   chan<- *Process

	mu   sync.Mutex
	text []byte
}

const keptOutput = 16 << 10

// Write keeps a part of the output.
func (p *Process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = append(p.text, text...)
	p.text = p.text[max(0, len(p.text)-keptOutput):]
	select {
	case p.wrote <- p:
	default: // nobody is waiting to kill
	}
	return len(text), nil
}

// String returns the end of the output.
func (p *Process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.text)
}

// New returns a fleet of the recipe that works in a folder with the key of an account. Leases of a killed process
// expire after two seconds.
func New(folder, key string, args ...string) *Fleet {
	args = append([]string{"-expiration", "2s"}, args...)
	return &Fleet{folder: folder, env: []string{"COSMOS_KEY=" + key}, args: args, wrote: make(chan *Process)}
}

// Against returns a fleet of the recipe on a container of an account, such as shop/orders.
func Against(server *cosmostest.Server, container, folder string, args ...string) *Fleet {
	return New(folder, server.Key, append([]string{"-from", server.URL + "/" + container}, args...)...)
}

// Recipe returns the recipe as a command with arguments.
func Recipe(t *testing.T, folder string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self, args...)
	command.Dir, command.Env = folder, append(os.Environ(), asRecipe+"=1")
	return command
}

// RunLocally runs the recipe on a local store, twice, so that the second run continues, and returns what both have
// said.
func RunLocally(t *testing.T, folder string, args ...string) (said string) {
	t.Helper()
	for range 2 {
		out, err := Recipe(t, folder, append(args, "-for", "1500ms")...).CombinedOutput()
		if said += string(out); err != nil {
			t.Fatalf("on a local store: %v\n%s", err, said)
		}
	}
	return said
}

// Start starts one more process. The process is killed if it still runs at the end of the test.
func (f *Fleet) Start(t *testing.T) {
	t.Helper()
	command := Recipe(t, f.folder, f.args...)
	command.Env = append(command.Env, f.env...)
	p := &Process{command: command, wrote: f.wrote}
	command.Stdout, command.Stderr = p, p
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	f.Running = append(f.Running, p)
	t.Cleanup(func() { _ = command.Process.Kill() })
}

// Kill ends a process with kill -9, and starts another one. If the process has ended by itself, the test fails.
func (f *Fleet) Kill(t *testing.T, p *Process) {
	t.Helper()
	killed := p.command.Process.Kill()
	err := p.command.Wait()
	if killed != nil || p.command.ProcessState.Exited() {
		t.Fatalf("a process ended by itself: %v, %v\n%s", killed, err, p)
	}
	f.Running = slices.DeleteFunc(f.Running, func(other *Process) bool { return other == p })
	f.Start(t)
}

// Freeze stops a process at work for three seconds, longer than its leases last. Then the process goes on with work
// that another process has taken over.
func (f *Fleet) Freeze(t *testing.T) {
	t.Helper()
	frozen := f.Running[0]
	select {
	case frozen = <-f.wrote: // at work
	case <-time.After(3 * time.Second):
	}
	p := frozen.command.Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pause(t.Context(), 3*time.Second)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// Stop ends all processes as Ctrl-C does: each must end without an error. Stop returns what they have written.
func (f *Fleet) Stop(t *testing.T) (texts []string) {
	t.Helper()
	for _, p := range f.Running {
		if err := p.command.Process.Signal(os.Interrupt); err != nil {
			t.Fatalf("a process ended by itself: %v\n%s", err, p)
		}
	}
	for _, p := range f.Running {
		late := time.AfterFunc(time.Minute, func() { _ = p.command.Process.Kill() })
		err := p.command.Wait()
		state, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
		unready := ok && state.Signal() == syscall.SIGINT && p.String() == ""     // the process had just begun
		if unready || strings.Contains(p.String(), "interrupt signal received") { // it opened its containers
			err = nil
		}
		if err != nil {
			t.Errorf("a process did not end in order: %v\n%s", err, p)
		}
		late.Stop()
		texts = append(texts, p.String())
	}
	f.Running = nil
	return texts
}

const processes = 3

// KillMany runs three processes and kills one after the other, until there were so many kills. Every second kill is at
// a random moment. Every other kill is of a process that has just written a line about its work, so that the position
// of this work is probably not stored yet. The function write is called again and again meanwhile, and after is called
// after each kill.
func (f *Fleet) KillMany(t *testing.T, kills int, write func(ctx context.Context) error, after func(kill int)) {
	t.Helper()
	for len(f.Running) < processes {
		f.Start(t)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wrong error
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil && wrong == nil {
			wrong = write(t.Context())
			pause(ctx, 2*time.Millisecond)
		}
	})
	begun := time.Now()
	for kill := range kills {
		p := f.Running[rand.IntN(len(f.Running))]
		pause(ctx, rand.N(500*time.Millisecond))
		if kill%2 == 0 {
			select {
			case p = <-f.wrote:
			case <-time.After(3 * time.Second): // nobody has a lease
			}
		}
		f.Kill(t, p)
		after(kill)
	}
	t.Logf("%d kills in %v", kills, time.Since(begun))
	stop()
	writing.Wait()
	if wrong != nil {
		t.Fatal("write:", wrong)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Eventually waits until check returns nil. After a minute the test fails with the last error, and with what the
// processes have written.
func (f *Fleet) Eventually(t *testing.T, check func() error) {
	t.Helper()
	Eventually(t, func() error {
		err := check()
		for i, p := range f.Running {
			if err != nil {
				err = fmt.Errorf("%w\nthe end of the output of process %d:\n%s", err, i, p)
			}
		}
		return err
	})
}

// Eventually waits until check returns nil. After a minute the test fails with the last error.
func Eventually(t *testing.T, check func() error) {
	t.Helper()
	err, begun := check(), time.Now()
	for end := begun.Add(time.Minute); err != nil && time.Now().Before(end); err = check() {
		pause(t.Context(), 100*time.Millisecond)
	}
	if err != nil {
		t.Fatal("not within a minute: ", err)
	}
}

// Split splits the first partition of a container.
func Split(t *testing.T, c *docstore.Container) {
	t.Helper()
	all, err := c.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Split(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
}
