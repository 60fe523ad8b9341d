package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// openTerminal returns both ends of a pseudo-terminal: what a person sees and types, and what a process has.
func openTerminal(t *testing.T) (person, process *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("the machine gives no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	var unlocked, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlocked, syscall.TIOCGPTN: &number} {
		if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request,
			uintptr(unsafe.Pointer(value))); failed != 0 {
			t.Fatal(failed)
		}
	}
	if process, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Skipf("the machine gives no pseudo-terminal: %v", err)
	}
	return person, process
}

// answered runs a command at a terminal, gives the answer to its question, and returns the question, the output and the
// exit code.
func answered(t *testing.T, answer string, args ...string) (question, out string, code int) {
	t.Helper()
	person, process := openTerminal(t)
	defer person.Close()
	cmd := exec.Command("changefeed", args...)
	var stdout strings.Builder
	cmd.Stdin, cmd.Stderr, cmd.Stdout = process, process, &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	screen := bufio.NewReader(person)
	for !strings.HasSuffix(question, "[y/N] ") && !strings.HasSuffix(question, "it: ") {
		b, err := screen.ReadByte()
		if err != nil {
			t.Fatalf("after %q: %v", question, err)
		}
		question += string(rune(b))
	}
	if answer == "^C" {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	} else if _, err := io.WriteString(person, answer+"\n"); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, screen) // ends with an error when the process has closed its end
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return question, stdout.String(), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return question, stdout.String(), 0
}

func TestAPersonIsAskedBeforeAnythingIsDeleted(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, generated(3), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/id")
	if _, err := process(t.Context(), dir, "orders", "mailer"); err != nil {
		t.Fatal(err)
	}
	if err := park(t.Context(), dir, "letters", "mailer"); err != nil {
		t.Fatal(err)
	}
	at := func(args ...string) []string { return append(args, "--db", dir, "--container") }
	for _, tt := range []struct {
		args                  []string
		question, answer, out string
		code                  int
	}{
		{
			append(at("delete", "000001"), "orders"), `Delete document "000001" of key ["000001"] in orders of store ` + dir + `? [y/N] `,
			"", "", 1,
		},
		{append(at("delete", "000001"), "orders"), "Delete document", "^C", "", exitInterrupted},
		{append(at("delete", "000001"), "orders"), "Delete document", "y", "deleted document", 0},
		{
			append(at("leases", "delete", "--name", "mailer"), "leases"),
			"Delete 1 lease of unit mailer on orders, with the positions? [y/N] ", "y",
			"deleted unit mailer on orders with 1 lease", 0,
		},
		{
			append(at("dlq", "drop", "--name", "mailer", "--all"), "letters"),
			"Drop 4 letters of unit mailer, with their documents? [y/N] ", "yes", "dropped 4 letters", 0,
		},
		{
			append(at("drop"), "orders"),
			"Delete container orders of store " + dir + " with 2 documents? Type orders to delete it: ", "y", "", 1,
		},
		{append(at("drop"), "orders"), "Delete container", "orders", "deleted container orders with 2 documents", 0},
	} {
		question, out, code := answered(t, tt.answer, tt.args...)
		if !strings.HasPrefix(question, tt.question) ||
			!strings.HasPrefix(out, tt.out) || (out == "") != (tt.out == "") || code != tt.code {
			t.Errorf("%v: asked %q, answered %q: got %q, exit code %d; want %q, %q and %d", tt.args, question, tt.answer,
				out, code, tt.question, tt.out, tt.code)
		}
	}
}

// The next line of a script is no answer, although a person sees the question.
func TestAScriptIsNotAskedAtATerminal(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, generated(3), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/id")
	person, process := openTerminal(t)
	defer person.Close()
	defer process.Close()
	cmd := exec.Command("changefeed", "delete", "000001", "--db", dir, "--container", "orders")
	cmd.Stdin, cmd.Stderr = strings.NewReader("y\n"), process
	out, err := cmd.Output()
	exit, failed := errors.AsType[*exec.ExitError](err)
	if !failed || exit.ExitCode() != exitUsage || len(out) > 0 {
		t.Errorf("got %s, %v, want the code of a wrong use", out, err)
	}
}

// Nobody sees a question that goes into a file, so an answer that somebody types is none.
func TestNobodyIsAskedInAFile(t *testing.T) {
	dir := storeOf(t, `{"id":"1","pk":"a"}`)
	person, process := openTerminal(t)
	defer process.Close()
	if _, err := io.WriteString(person, "y\n"); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "errors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command("changefeed", "delete", "1", "--key", "a", "--db", dir, "--container", "orders")
	cmd.Stdin, cmd.Stderr = process, file
	err = cmd.Run()
	text, _ := os.ReadFile(file.Name()) // what cannot be read has not what is looked for
	exit, failed := errors.AsType[*exec.ExitError](err)
	if !failed || exit.ExitCode() != exitUsage || !strings.Contains(string(text), "--yes is missing") {
		t.Errorf("got %v and %s, want the code of a wrong use", err, text)
	}
}

// On a terminal, too, the progress of a command with -o json is an object a line.
func TestProgressForProgramsIsNoBarOnATerminal(t *testing.T) {
	person, process := openTerminal(t)
	synctest.Test(t, func(t *testing.T) {
		r := report.New(report.JSON, io.Discard)
		r.Err = process
		measure := func() report.State { return report.State{Done: 1, Total: 2} }
		if err := r.During("orders", report.Bytes, measure, func() error {
			time.Sleep(terminal.LineEvery + time.Second)
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(person) // ends with an error, because nobody has the terminal open
	lines := strings.SplitSeq(strings.TrimSuffix(string(text), "\r\n"), "\r\n")
	for line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("got %q, want an object a line", text)
		}
	}
}
