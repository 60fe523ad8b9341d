package explorer

import (
	"net/http"
	"strings"
	"testing"
)

// copies are the texts of what the page does, by their languages.
func (w *world) copies(values ...string) map[string]string {
	w.t.Helper()
	var got struct{ Copies []copied }
	w.ask(http.StatusOK, http.MethodGet, "copy", of(values...), "", "", &got)
	all := map[string]string{}
	for _, c := range got.Copies {
		all[c.Language] = c.Text
	}
	return all
}

// The address of a container in a copied command means the same container, whatever characters its name has.
func TestACopiedAddressIsEscaped(t *testing.T) {
	w := newWorld(t)
	w.e.places = nil
	w.e.Show(OfStore(w.db, "", func() string { return "http://localhost:8081/" }))
	text := w.copies("container", "my shop/new orders%2F", "view", "query", "sql", "SELECT 1")["changefeed"]
	if want := "changefeed query http://localhost:8081/my%20shop/new%20orders%252F 'SELECT 1'"; text != want {
		t.Errorf("the command is %s, want %s", text, want)
	}
}

// A copied program has all values of a hierarchical key.
func TestACopiedProgramHasTheWholeKey(t *testing.T) {
	w := newWorld(t)
	all := w.copies("view", "item", "id", "1", "key", `["oslo",7]`)
	for language, want := range map[string]string{
		"changefeed": `--key='["oslo",7]'`,
		"curl":       `'key=["oslo",7]'`,
		"Go":         `.AppendString("oslo").AppendNumber(7)`,
		"C#":         `.Add("oslo").Add(7)`,
		"JavaScript": `["oslo", JSON.parse("7")]`,
		"Python":     `partition_key=json.loads("[\"oslo\",7]")`,
	} {
		if got := all[language]; !strings.Contains(got, want) {
			t.Errorf("%s is %s, want %s", language, got, want)
		}
	}
	got := w.copies("view", "item", "id", "1", "key", "oslo")["Python"]
	if !strings.Contains(got, `partition_key="oslo"`) {
		t.Errorf("with one value Python is %s", got)
	}
}
