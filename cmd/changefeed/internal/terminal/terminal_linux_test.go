package terminal

import (
	"os"
	"testing"
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
