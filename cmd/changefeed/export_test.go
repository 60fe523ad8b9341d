package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unload"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
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

// Who interrupts an export, or sees it fail, hears what is written and how to go on.
func TestAnUnfinishedExportSaysHowToGoOn(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	chosen := unload.Options{Count: new(atomic.Int64)}
	chosen.Count.Store(12)
	for _, tt := range []struct {
		ctx  context.Context
		to   string
		want string
	}{
		{interrupted, "", "interrupted after 12 documents, the last of them whole; the same command begins anew; an export " +
			"with --to FILE goes on"},
		{interrupted, "f", "interrupted: 7 documents are safe in f, and the same command goes on after them"},
		{t.Context(), "f", "EOF; 7 documents are safe in f, and the same command goes on after them"},
		{t.Context(), "", "EOF"},
	} {
		o := exportOptions{to: tt.to}
		if err := o.unfinished(tt.ctx, chosen, 7, io.EOF); err == nil || err.Error() != tt.want {
			t.Errorf("with --to %q: got %v, want %s", tt.to, err, tt.want)
		}
		if err := o.unfinished(tt.ctx, chosen, 7, nil); err != nil {
			t.Errorf("with --to %q, at the end: got %v", tt.to, err)
		}
	}
	o := exportOptions{to: "f"}
	if err := o.unfinished(t.Context(), chosen, 7, feed.ErrAhead); err != feed.ErrAhead {
		t.Errorf("with a mark that is ahead of the feed: got %v, want nothing about how to go on", err)
	}
}
