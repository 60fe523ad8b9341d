package migration

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
)

// TestLeasesServeASingleTarget: with the leases of another target, or of one that was dropped and made anew, the copy
// would pass over what was copied before.
func TestLeasesServeASingleTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{Retention: time.Hour})
	w.put("orders", order("1", "Oslo", "ada", 1))
	w.copy.Name = "copy"
	for range 2 { // the same command goes on
		if err := w.run(); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string) {
		t.Helper()
		for _, w.copy.DryRun = range []bool{true, false} {
			if err := w.run(); err == nil || !strings.Contains(err.Error(), "leases delete") {
				t.Errorf("%s: the error is %v", what, err)
			}
		}
	}
	w.with(func(db *docstore.DB) {
		w.create(db, docstore.ContainerSpec{ID: "others", Paths: []string{w.key}})
		if err := db.DeleteContainer(t.Context(), "copies"); err != nil {
			t.Error(err)
		}
		w.create(db, docstore.ContainerSpec{ID: "copies", Paths: []string{w.key}})
	})
	refused("a target that was made anew")
	first := w.pair.Target
	w.pair.Target = strings.Replace(first, "#copies", "#others", 1)
	refused("another target")
	w.pair.Target, w.copy.Create = strings.Replace(first, "#copies", "#third", 1), []string{w.key}
	w.copy.DryRun = true
	if err := w.run(); err == nil || !strings.Contains(err.Error(), "leases delete") {
		t.Errorf("a target that is missing: the error is %v", err)
	}
}

// TestLeasesServeASingleTransform: what was copied before would stay as another transform has made it.
func TestLeasesServeASingleTransform(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{Retention: time.Hour})
	w.put("orders", order("1", "Oslo", "ada", 1))
	w.pair.Transform, w.pair.DeletedWhen = []string{"cat", "-u"}, "gone"
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	first := w.pair
	for _, tt := range []struct {
		change func(p *Pair)
		want   string
	}{
		{func(p *Pair) { p.TTL = Exact }, "--ttl is exact: "},
		{func(p *Pair) { p.DeletedWhen = "" }, `--deleted-when is "": `},
		{func(p *Pair) { p.Transform = nil }, "COMMAND is missing: "},
		{func(p *Pair) { p.Transform = []string{"cat"} }, "COMMAND is cat: "},
	} {
		w.pair = first
		tt.change(&w.pair)
		for _, w.copy.DryRun = range []bool{true, false} {
			err := w.run()
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || !strings.Contains(err.Error(), "--name") ||
				!strings.Contains(err.Error(), "leases delete") {
				t.Errorf("want %s… with what to do, got %v", tt.want, err)
			}
		}
	}
	w.pair, w.copy.Name, w.pair.TTL = first, "again", Exact
	if err := w.run(); err != nil {
		t.Errorf("another name: %v", err)
	}
	w.pair, w.copy.Name = first, ""
	if err := w.run(); err != nil {
		t.Errorf("the same command: %v", err)
	}
}
