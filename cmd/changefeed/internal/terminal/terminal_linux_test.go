package terminal

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// What a terminal shows depends on the environment. A file and a pipe are none.
func TestATerminalIsAskedWhatItUnderstands(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("the machine gives no pseudo-terminal: %v", err)
	}
	defer terminal.Close()
	for _, tt := range []struct {
		term, noColour  string
		inPlace, colour bool
	}{{"xterm", "", true, true}, {"xterm", "1", true, false}, {"dumb", "", false, false}} {
		t.Setenv("TERM", tt.term)
		t.Setenv("NO_COLOR", tt.noColour)
		got := Of(terminal)
		if got.InPlace != tt.inPlace || got.Colour != tt.colour {
			t.Errorf("TERM=%s NO_COLOR=%s: got %+v, want in place %v, colour %v", tt.term, tt.noColour, got, tt.inPlace,
				tt.colour)
		}
		if got.Room() != Narrow-1 { // a new terminal does not know its width
			t.Errorf("there is room for %d characters, want %d", got.Room(), Narrow-1)
		}
	}
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := Of(file); got.Room() != 0 || got.InPlace || got.Colour {
		t.Errorf("a file is taken for a terminal: %+v", got)
	}
}

// A follower ends when its reader has gone, also if that was before the follower looks.
func TestAReaderThatHasGoneIsMissed(t *testing.T) {
	for _, isGoneBefore := range []bool{true, false} {
		reading, writing, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/proc/self/fd/%d", writing.Fd())
		if isGoneBefore {
			reading.Close()
		}
		again, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := again.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		giveUp := time.AfterFunc(10*time.Second, func() { again.Close() })
		if !isGoneBefore {
			reading.Close()
		}
		if err := awaitReadable(conn); err != nil {
			t.Errorf("gone before %v: nobody has noticed: %v", isGoneBefore, err)
		}
		giveUp.Stop()
		again.Close()
		writing.Close()
	}
}
