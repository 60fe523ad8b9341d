package child

import (
	"io"
	"os/exec"
	"strings"
	"testing"
)

// The reason of a failure is usually the last line, and in a long line its end.
func TestTheReasonIsTheEndOfTheLastLine(t *testing.T) {
	long := strings.Repeat("at frame, ", maxReason) + "no such mailbox"
	for said, want := range map[string]string{
		"":                              "",
		"one\ntwo\n":                    "two",
		"one\ntwo\n \n\n":               "two",
		"one\n" + long + "\n":           long[len(long)-maxReason:],
		long + "\n" + "short\xff end\r": "short end",
	} {
		cmd := exec.Command("never-started")
		o, err := NewStderr(cmd, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(cmd.Stderr, said); err != nil {
			t.Fatal(err)
		}
		o.CloseOurEnd()
		<-o.closed
		if got := o.LastLine(); got != want {
			t.Errorf("%.20q: got %q, want %q", said, got, want)
		}
	}
}
