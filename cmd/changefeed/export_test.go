package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// A container whose name is lost is named by what stands for its name, which is no name elsewhere.
func TestAContainerWhoseNameIsLostCanBeNamed(t *testing.T) {
	var o exportOptions
	o.db, o.container = "d", "container 3"
	if dir, name, err := o.damagedStore(exportCommand(), nil); dir != "d" || name != "container 3" || err != nil {
		t.Errorf("named %q, %q, %v", dir, name, err)
	}
}

// What a salvage does not do is refused, and not left out silently: it would look like the whole.
func TestASalvageRefusesWhatItCannotDo(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"--db", dir, "--container", "c", "--range", "-20"},
		{"--db", dir, "docstore:" + dir + "#c"},
		{"http://127.0.0.1:9/shop/c"},
		{},
	} {
		var began bool
		root := rootCommand(&began)
		root.SetArgs(append([]string{"export", "--salvage"}, args...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); err == nil || began && !errors.As(err, new(usage.Error)) {
			t.Errorf("%q: got %v, want an error of usage", args, err)
		}
	}
}

// The lines that long work writes to standard error have a schema, like results.
func TestWhatLongWorkSaysHasASchema(t *testing.T) {
	schema, err := report.SchemaOf(append(report.Kinds(), exportKind))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"export", "progress", "notice", "error"} {
		if !strings.Contains(string(schema), `"const": "`+kind+`"`) {
			t.Errorf("the schema lacks the kind %s", kind)
		}
	}
}
