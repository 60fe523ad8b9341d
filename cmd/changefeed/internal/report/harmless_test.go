package report

import (
	"strings"
	"testing"
)

// The names of members and the words of a server may be made to control the terminal of who reads them.
func TestAHeadingAndANoticeControlNoTerminal(t *testing.T) {
	var out, errs strings.Builder
	r := &Report{Form: Table, Out: &out, Err: &errs, Command: "changefeed query"}
	rows := r.Rows()
	if err := rows.AddDocument([]byte(`{"name\u001b[2J":"x","\u009b5m":"y"}`)); err != nil {
		t.Fatal(err)
	}
	if err := rows.Flush(); err != nil {
		t.Fatal(err)
	}
	r.Notice("the server said %s", "no\x1b]0;title\a")
	for word, text := range map[string]string{"name": out.String(), "title": errs.String()} {
		if strings.ContainsAny(text, "\x1b\a\u009b") || !strings.Contains(text, word) {
			t.Errorf("got %q, want %s", text, word)
		}
	}
}
