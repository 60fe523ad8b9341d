//go:build unix

package program

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
)

// shell is a program that runs a script. What it starts holds the pipe open.
func shell(t *testing.T, script string) (h *Handler, output *os.File) {
	t.Helper()
	output, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { output.Close() })
	t.Cleanup(func() { in.Close() })
	h, err = New([]string{"sh", "-c", script}, Options{
		Grace: time.Minute, Expiration: hurriedPart * time.Millisecond,
		Stdout: in, Stderr: os.Stderr,
	})
	if err != nil {
		t.Skip("there is no shell")
	}
	return h, output
}

// orders is a batch of two.
func orders() *feed.Batch {
	return &feed.Batch{
		LeaseToken: "-1F", Range: feed.Range{Max: "1F"}, Instance: "one", Attempt: 2,
		Changes: []feed.Change{
			{LSN: 5, ID: "1", PartitionKey: `["a"]`, Body: []byte("{\"id\":\r\n\"1\"}")},
			{LSN: 6, ID: "2", PartitionKey: `["a"]`, Op: feed.OpDelete},
		},
	}
}

func TestAProgramIsDoneWhenItExitsWithZero(t *testing.T) {
	for _, tt := range []struct{ name, script, want string }{
		{"zero", "cat >/dev/null", ""},
		{"without reading", "exit 0", ""},
		{"another code", "exit 7", "sh: exit status 7"},
		{"a signal", "kill -KILL $$", "sh: signal: killed"},
		{
			"and a reason", "echo first >&2; printf '%s\\n\\n' 'no such mailbox' >&2; exit 7",
			"sh: exit status 7: no such mailbox",
		},
		{"and a long reason", "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 7", "sh: exit status 7: " +
			strings.Repeat("x", 1024)},
		{"others left behind", "sleep 60 & echo gone >&2; exit 7", "sh: exit status 7: gone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := shell(t, tt.script)
			err := h.Handle(t.Context(), orders())
			if got := text(err); got != tt.want {
				t.Errorf("got error %q, want %q", got, tt.want)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Another instance begins a tenth of the expiration after the loss of a lease, so the kill comes after half of that.
func TestALostLeaseHasATwentiethOfTheExpiration(t *testing.T) {
	patience := hostOptions(WorkerOptions{Grace: time.Minute, Expiration: time.Minute}).Patience
	for cause, want := range map[contract.Cause]time.Duration{
		contract.CauseLost: 3 * time.Second, contract.CauseTimeout: time.Minute, contract.CauseStopped: time.Minute,
	} {
		if got := patience(cause); got != want {
			t.Errorf("%s has %v, want %v", cause, got, want)
		}
	}
	hurried := hostOptions(WorkerOptions{Grace: time.Second, Expiration: time.Minute}).Patience
	if got := hurried(contract.CauseLost); got != time.Second {
		t.Errorf("a grace that is shorter is %v, want 1s", got)
	}
}

func TestAProgramGetsItsBatch(t *testing.T) {
	var out bytes.Buffer
	h, _ := shell(t, `unset CHANGEFEED_BINARY; env | grep ^CHANGEFEED_ | sort; cat`)
	h.opts.Stdout, h.form.Meta = &out, true
	if err := h.Handle(t.Context(), orders()); err != nil {
		t.Fatal(err)
	}
	want := `CHANGEFEED_ATTEMPT=2
CHANGEFEED_INSTANCE=one
CHANGEFEED_LEASE=-1F
CHANGEFEED_RANGE=-1F
{"lsn":5,"time":"0001-01-01T00:00:00Z","op":"upsert","id":"1","key":["a"],"range":"-1F","document":{"id":"1"}}
{"lsn":6,"time":"0001-01-01T00:00:00Z","op":"delete","id":"2","key":["a"],"range":"-1F"}
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestAProgramEndsWithItsLease waits for the program and all that it has started to be
// gone: nobody has the pipe open any more.
func TestAProgramEndsWithItsLease(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		cause        error
		want         string // of the error, and of the output
		said         string
	}{
		{
			"one that is stubborn for a while", "trap '' TERM; echo begun; sleep 20; echo beside its successor",
			feed.ErrLeaseLost, "sh: signal: killed", "begun\n",
		},
		{
			"one that is stubborn", "trap '' TERM; sleep 60 & echo begun; wait; sleep 60", feed.ErrLeaseLost,
			"sh: signal: killed", "begun\n",
		},
		{
			"one that listens", "trap 'echo asked; exit 0' TERM; sleep 60 & echo begun; wait", feed.ErrStopped, "",
			"begun\nasked\n",
		},
		{
			"one that listens, and has started one that does not",
			"trap 'echo asked; exit 0' TERM; (trap '' TERM; echo begun; sleep 20; echo left behind) & wait",
			feed.ErrStopped, "", "begun\nasked\n",
		},
		{
			"one that fails", "trap 'exit 1' TERM; sleep 60 & echo begun; wait", feed.ErrHandlerTimeout,
			"sh: exit status 1", "begun\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, output := shell(t, tt.script)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error, 1)
			go func() { ended <- h.Handle(ctx, orders()) }()
			said := make([]byte, len("begun\n"))
			if _, err := io.ReadFull(output, said); err != nil {
				t.Fatal(err)
			}
			cancel(tt.cause)
			if got := text(<-ended); got != tt.want {
				t.Errorf("got error %q, want %q", got, tt.want)
			}
			h.opts.Stdout.(*os.File).Close()
			rest, err := io.ReadAll(output)
			if err != nil || string(said)+string(rest) != tt.said {
				t.Errorf("got output %q and %q, %v, want %q", said, rest, err, tt.said)
			}
		})
	}
}

// TestAProgramThatIsAskedToEndMayStillReadItsBatch has a batch that no pipe holds. With
// all of it read the program is done, so it must not come again.
func TestAProgramThatIsAskedToEndMayStillReadItsBatch(t *testing.T) {
	for _, cause := range []error{feed.ErrStopped, feed.ErrHandlerTimeout} {
		h, output := shell(t, "trap 'exec wc -l' TERM; sleep 60 & echo begun; wait")
		b := orders()
		b.Changes = slices.Repeat(b.Changes[:1], 20_000)
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Handle(ctx, b) }()
		said := bufio.NewScanner(output)
		said.Scan()
		cancel(cause)
		if err := <-ended; err != nil {
			t.Errorf("asked to end because of %q: got error %q, want none", cause, err)
		}
		h.opts.Stdout.(*os.File).Close()
		if said.Scan(); strings.TrimSpace(said.Text()) != "20000" {
			t.Errorf("asked to end because of %q: it read %s lines, want 20000", cause, said.Text())
		}
	}
}

// TestAProgramThatFailsLeavesNothingBehind waits, as above, for all that it has started:
// it would work on the batch beside the next attempt.
func TestAProgramThatFailsLeavesNothingBehind(t *testing.T) {
	h, output := shell(t, "sleep 60 & exit 7")
	if got, want := text(h.Handle(t.Context(), orders())), "sh: exit status 7"; got != want {
		t.Errorf("got error %q, want %q", got, want)
	}
	h.opts.Stdout.(*os.File).Close()
	if rest, err := io.ReadAll(output); err != nil || len(rest) > 0 {
		t.Errorf("got output %q, %v, want none", rest, err)
	}
}

// A program that is done may have started a service, which has its standard output for as long as it runs.
func TestAProgramIsDoneThoughOthersHaveItsOutput(t *testing.T) {
	var out bytes.Buffer
	h, _ := shell(t, "sleep 60 & echo $!; exit 0")
	h.opts.Stdout, h.opts.Grace = &out, 100*time.Millisecond
	begun := time.Now()
	err := h.Handle(t.Context(), orders())
	if took := time.Since(begun); err != nil || took > 30*time.Second {
		t.Errorf("got error %v after %v, want none at once", err, took)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestBatchesThatTheEndOfTheProcessorCutAreNamedOnce(t *testing.T) {
	h, output := shell(t, "trap 'exit 1' TERM; sleep 60 & echo begun; wait")
	lines := bufio.NewScanner(output)
	for lease, cause := range map[string]error{
		"b": feed.ErrStopped, "a": feed.ErrStopped, "c": feed.ErrLeaseLost,
		"d": feed.ErrStopped,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		b := orders()
		b.LeaseToken = lease
		ended := make(chan error, 1)
		go func() { ended <- h.Handle(ctx, b) }()
		lines.Scan()
		cancel(cause)
		if err := <-ended; err == nil {
			t.Errorf("the program of %s is done", lease)
		}
	}
	if got := h.Unfinished(); !slices.Equal(got, []string{"a", "b", "d"}) {
		t.Errorf("unfinished are %v, want those that the end of the processor has cut", got)
	}
	if got := h.Unfinished(); len(got) > 0 {
		t.Errorf("unfinished since are %v, want none", got)
	}
}

func TestAProgramIsNotFedAfterItsLeaseWasLost(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	in := fenced{ctx, bytes.NewBufferString("changes")}
	b := make([]byte, 3)
	if n, err := in.Read(b); n != 3 || err != nil {
		t.Errorf("got %d bytes, %v, want 3", n, err)
	}
	cancel(feed.ErrLeaseLost)
	if n, err := in.Read(b); n != 0 || !errors.Is(err, feed.ErrLeaseLost) {
		t.Errorf("got %d bytes, %v, want none and %v", n, err, feed.ErrLeaseLost)
	}
	in.left.Next(len("nges"))
	if n, err := in.Read(b); n != 0 || err != io.EOF {
		t.Errorf("got %d bytes, %v, want the end when nothing was held back", n, err)
	}
}

// handleAll handles n batches of one lease at once.
func handleAll(ctx context.Context, h *Handler, n int) (ended <-chan error) {
	errs := make(chan error, n)
	for range n {
		go func() { errs <- h.Handle(ctx, orders()) }()
	}
	return errs
}

func TestProgramsOfOneLeaseRunBesideEachOther(t *testing.T) {
	h, output := shell(t, "echo $$; exec sleep 9")
	ended := handleAll(t.Context(), h, 3)
	lines := bufio.NewScanner(output)
	for range 3 {
		lines.Scan()
	}
	pid, err := strconv.Atoi(lines.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a program that was killed is done")
	}
	if got := h.Running(); !slices.Equal(got, []string{"-1F"}) {
		t.Errorf("leases with a program are %v, want the one, once", got)
	}
	h.Kill()
	for range 2 {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("a program ended with %v", err)
		}
	}
	if got := h.Running(); len(got) > 0 {
		t.Errorf("leases with a program are %v after all have ended", got)
	}
}

// A batch may be on its way to a program while the process is about to exit, and nobody would end that program.
func TestNoProgramIsStartedAfterAllWereKilled(t *testing.T) {
	h, output := shell(t, "echo begun")
	h.Kill()
	if err := h.Handle(t.Context(), orders()); !errors.Is(err, feed.ErrStopped) {
		t.Errorf("got %v, want %v", err, feed.ErrStopped)
	}
	h.opts.Stdout.(*os.File).Close()
	if rest, err := io.ReadAll(output); err != nil || len(rest) > 0 {
		t.Errorf("got output %q, %v, want none", rest, err)
	}
}

// locked is a writer for several programs.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

func TestNoMoreProgramsRunThanJobsAllow(t *testing.T) {
	var output bytes.Buffer
	h, err := New([]string{"sh", "-c", `cd "$0"; touch $$; ls | wc -l; sleep 0.02; rm $$`, t.TempDir()},
		Options{Jobs: 2, Stdout: &locked{to: &output}, Stderr: os.Stderr})
	if err != nil {
		t.Skip("there is no shell")
	}
	ended := handleAll(t.Context(), h, 8)
	for range 8 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for line := range strings.Lines(output.String()) {
		if n := strings.TrimSpace(line); n != "1" && n != "2" {
			t.Errorf("%s programs at once, want 2", n)
		}
	}
}

func TestABatchThatWaitsForItsTurnHeedsItsContext(t *testing.T) {
	h, err := New([]string{"sleep", "60"}, Options{Jobs: 1})
	if err != nil {
		t.Skip("there is no sleep")
	}
	h.turns <- struct{}{} // another program runs
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(feed.ErrLeaseLost)
	if err := h.Handle(ctx, orders()); !errors.Is(err, feed.ErrLeaseLost) ||
		!strings.Contains(err.Error(), "wait for one of 1 programs") {
		t.Errorf("got %v, want %q", err, feed.ErrLeaseLost)
	}
}

// Lines of programs that run at the same time can be told apart.
func TestEachLineOfStandardErrorIsLoggedWithItsLease(t *testing.T) {
	var log locked
	var text strings.Builder
	log.to = &text
	script := `printf 'first\nsec'; printf 'ond\n\n'; printf 'no end'; head -c 40000 /dev/zero | tr '\0' x`
	h, err := New([]string{"sh", "-c", "{ " + script + "; } >&2"},
		Options{Log: slog.New(slog.NewTextHandler(&log, nil)).With("instance", "one"), Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Handle(t.Context(), orders()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d lines, want two that end, and one of 40 KB in three parts:\n%.2000s", len(lines), text.String())
	}
	for i, want := range []string{"first", "second", `"no endxx`, "xxx", "xxx"} {
		if !strings.Contains(lines[i], "level=WARN msg="+want) ||
			!strings.Contains(lines[i], "instance=one lease=-1F origin=program") {
			t.Errorf("line %d is %.100s … %s, want %s", i, lines[i], lines[i][len(lines[i])-60:], want)
		}
	}
}

// A log for programs is JSON, in which a duration would be a number of nanoseconds.
func TestTheLogSaysInWordsHowLongAProgramIsSilent(t *testing.T) {
	var log strings.Builder
	o := hostOptions(WorkerOptions{Log: slog.New(slog.NewJSONHandler(&log, nil))})
	o.Silent(15 * time.Second)
	if !strings.Contains(log.String(), `"for":"15s"`) {
		t.Errorf("the log says %s", log.String())
	}
}
