package explorer

import (
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// The page breaks a document into lines to show it. What it saves is not longer for that: the stored text has no space
// that no text in it has, and a document that may be as long as accounts take can be saved.
func TestADocumentDoesNotGrowWithItsLines(t *testing.T) {
	w := newWorld(t)
	values := strings.Repeat("1,", 400_000) + "12345678901234567890"
	whole := `{"id":"1","city":"c","text":"a  b","values":[` + values + `]}`
	lines := "{\n  \"id\": \"1\",\n  \"city\": \"c\",\n  \"text\": \"a  b\",\n  \"values\": [\n" +
		strings.ReplaceAll(values, ",", ",\n        ") + "\n  ]\n}"
	var first, second document
	w.ask(http.StatusCreated, http.MethodPost, "item", of(), whole, "", &first)
	if len(lines) < maxDocument {
		t.Fatalf("%d bytes in lines: want more than %d", len(lines), maxDocument)
	}
	q := of("id", "1", "key", "c")
	w.ask(http.StatusOK, http.MethodPut, "item", q, lines, first.ETag, &second)
	if second.Text != whole {
		t.Errorf("the saved document has %d bytes: want the %d that it had", len(second.Text), len(whole))
	}
	w.ask(http.StatusOK, http.MethodGet, "item", q, "", "", &second)
	if second.Text != whole {
		t.Errorf("the stored document has %d bytes: want the %d that it had", len(second.Text), len(whole))
	}
}

// What comes after the array of an import is not passed over in silence.
func TestWhatComesAfterAnArrayIsNamed(t *testing.T) {
	w := newWorld(t)
	const second = `{"id":"2","city":"c"}`
	for _, after := range []string{"\n[" + second + "]", "\n" + second, " nope", "]"} {
		var got imported
		w.ask(http.StatusOK, http.MethodPost, "import", of(), `[{"id":"1","city":"c"}]`+after, "", &got)
		if got.Written != 1 || got.Error == nil || !strings.Contains(*got.Error, "after the array") {
			t.Errorf("%q: %+v", after, got)
		}
	}
}

// An id may have characters that a terminal obeys or does not show. A copied text has none of them, and still means
// them.
func TestACopiedTextHasNothingThatATerminalObeys(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{
		"a\x03\n\trm -rf b", "\x1b[201~\nid\n", "it's\r\x7f\\n$(id)`id`", "\u202eab\u2066'", "\u2028\u200b\u0085",
		"=ls", "~", "é😀",
	} {
		var got struct{ Copies []copied }
		w.ask(http.StatusOK, http.MethodGet, "copy", of("view", "item", "id", id, "key", "c"), "", "", &got)
		for _, c := range got.Copies {
			for _, r := range c.Text {
				if r != '\n' && (r != '\t' || c.Language != "Go") && isUnseen(r) {
					t.Errorf("%q for %s has %U:\n%q", id, c.Language, r, c.Text)
				}
			}
		}
		command, _ := strings.CutPrefix(got.Copies[0].Text, "changefeed ")
		said, err := exec.CommandContext(t.Context(), "bash", "-c", `printf '%s\0' `+command).Output()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("this needs bash, which reads the copied text back")
		}
		if err != nil {
			t.Fatalf("bash refuses %q: %v", command, err)
		}
		words := strings.Split(string(said), "\x00")
		if last := words[len(words)-2]; last != id {
			t.Errorf("bash reads %q of %q", last, command)
		}
		literal := quoted(id)
		var is string
		if err := json.Unmarshal([]byte(literal), &is); err != nil || is != id {
			t.Errorf("the literal of %q is %s", id, literal)
		}
	}
}
