package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
)

// startAccount starts an account with the database shop, the containers, and the lease container "leases".
func startAccount(t *testing.T, specs ...docstore.ContainerSpec) *cosmostest.Server {
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

// runAs runs the tests of a recipe or, in the processes of a fleet, the main function of the recipe. So the recipe need
// not be linked again.
func runAs(m *testing.M, program func()) {
	if os.Getenv(asRecipe) != "" {
		program()
		return
	}
	m.Run()
}

// fleet is a set of running processes of the recipe under test.
type fleet struct {
	args   []string
	env    []string
	folder string // working directory

	running []*process
	wrote   chan *process // which has just written a line, so its position may not be stored yet
}

// process is a process, and the end of what it has written.
type process struct {
	command *exec.Cmd
	wrote   chan<- *process

	mu   sync.Mutex
	text []byte
}

const keptOutput = 16 << 10

// Write keeps a part of the output.
func (p *process) Write(text []byte) (int, error) {
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
func (p *process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.text)
}

// against returns a fleet of the recipe on an account, working in a folder. The leases of a killed process expire
// after two seconds.
func against(server *cosmostest.Server, folder string, args ...string) *fleet {
	args = append([]string{"-account", server.URL, "-expire", "2s"}, args...)
	return &fleet{folder: folder, env: []string{"COSMOS_KEY=" + server.Key}, args: args, wrote: make(chan *process)}
}

// recipe returns the recipe as a command with arguments.
func recipe(t *testing.T, folder string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self, args...)
	command.Dir, command.Env = folder, append(os.Environ(), asRecipe+"=1")
	return command
}

// runLocally runs the recipe on a local store, twice, so that the second run continues, and returns what both have
// said.
func runLocally(t *testing.T, folder string, args ...string) (said string) {
	t.Helper()
	for range 2 {
		out, err := recipe(t, folder, append(args, "-for", "1500ms")...).CombinedOutput()
		if said += string(out); err != nil {
			t.Fatalf("on a local store: %v\n%s", err, said)
		}
	}
	return said
}

// start starts one more process. The process is killed if it still runs at the end of the test.
func (f *fleet) start(t *testing.T) {
	t.Helper()
	command := recipe(t, f.folder, f.args...)
	command.Env = append(command.Env, f.env...)
	p := &process{command: command, wrote: f.wrote}
	command.Stdout, command.Stderr = p, p
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	f.running = append(f.running, p)
	t.Cleanup(func() { _ = command.Process.Kill() })
}

// kill ends a process with kill -9, and starts another one. If the process has ended by itself, the test fails.
func (f *fleet) kill(t *testing.T, p *process) {
	t.Helper()
	killed := p.command.Process.Kill()
	err := p.command.Wait()
	if killed != nil || p.command.ProcessState.Exited() {
		t.Fatalf("a process ended by itself: %v, %v\n%s", killed, err, p)
	}
	f.running = slices.DeleteFunc(f.running, func(other *process) bool { return other == p })
	f.start(t)
}

// freeze stops a process at work for three seconds, longer than its leases last. Then the process goes on with work
// that another process has taken over.
func (f *fleet) freeze(t *testing.T) {
	t.Helper()
	frozen := f.running[0]
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

// stop ends all processes as Ctrl-C does: each must end without an error. Stop returns what they have written.
func (f *fleet) stop(t *testing.T) (texts []string) {
	t.Helper()
	for _, p := range f.running {
		if err := p.command.Process.Signal(os.Interrupt); err != nil {
			t.Fatalf("a process ended by itself: %v\n%s", err, p)
		}
	}
	for _, p := range f.running {
		late := time.AfterFunc(time.Minute, func() { _ = p.command.Process.Kill() })
		err := p.command.Wait()
		state, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
		if ok && state.Signal() == syscall.SIGINT && p.String() == "" {
			err = nil // the process had just begun, and was not yet ready for the signal
		}
		if err != nil {
			t.Errorf("a process did not end in order: %v\n%s", err, p)
		}
		late.Stop()
		texts = append(texts, p.String())
	}
	f.running = nil
	return texts
}

const processes = 3

// killMany runs three processes and kills one after the other, until there were so many kills. Every second kill is at
// a random moment. Every other kill is of a process that has just written a line about its work, so that the position
// of this work is probably not stored yet. The function write is called again and again meanwhile, and after is called
// after each kill.
func (f *fleet) killMany(t *testing.T, kills int, write func(ctx context.Context) error, after func(kill int)) {
	t.Helper()
	for len(f.running) < processes {
		f.start(t)
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
		p := f.running[rand.IntN(len(f.running))]
		pause(ctx, rand.N(500*time.Millisecond))
		if kill%2 == 0 {
			select {
			case p = <-f.wrote:
			case <-time.After(3 * time.Second): // nobody has a lease
			}
		}
		f.kill(t, p)
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

// eventually waits until check returns nil. After a minute the test fails with the last error, and with what the
// processes have written.
func (f *fleet) eventually(t *testing.T, check func() error) {
	t.Helper()
	eventually(t, func() error {
		err := check()
		for i, p := range f.running {
			if err != nil {
				err = fmt.Errorf("%w\nthe end of the output of process %d:\n%s", err, i, p)
			}
		}
		return err
	})
}

// eventually waits until check returns nil. After a minute the test fails with the last error.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	err, begun := check(), time.Now()
	for end := begun.Add(time.Minute); err != nil && time.Now().Before(end); err = check() {
		pause(t.Context(), 100*time.Millisecond)
	}
	if err != nil {
		t.Fatal("not within a minute: ", err)
	}
}

// split splits the first partition of a container.
func split(t *testing.T, c *docstore.Container) {
	t.Helper()
	all, err := c.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Split(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
}
