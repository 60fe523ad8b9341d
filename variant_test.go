package changefeed_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// differences collects what Hooks.Differing is told.
type differences struct {
	mu   sync.Mutex
	told []feed.Difference
}

func (d *differences) add(_ context.Context, told feed.Difference) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.told, told)
}

func (d *differences) all() []feed.Difference {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.told)
}

// variantOptions are options of an instance that tells a collector of differences.
func variantOptions(d *differences, variant string) changefeed.Options {
	return changefeed.Options{Variant: variant, Hooks: changefeed.Hooks{Differing: d.add}}
}

// Each instance is told once when instances begin to differ, and once when they no longer do. Status says who differs
// meanwhile.
func TestInstancesThatDifferAreReportedOnce(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		var a, b, c differences
		one := w.run("a", &tally{}, variantOptions(&a, "mail 1"))
		two := w.run("b", &tally{}, variantOptions(&b, "mail 1"))
		time.Sleep(5 * time.Minute)
		if told := slices.Concat(a.all(), b.all()); len(told) > 0 {
			t.Fatalf("equal instances are said to differ: %v", told)
		}
		if all := one.processor.Status()[0].Variants; all.Differ() || len(all) != 1 ||
			!slices.Equal(all[0].Instances, []string{"a", "b"}) || all[0].Handler != "mail 1" {
			t.Errorf("the variants of equal instances are %+v", all)
		}
		began := time.Now()
		three := w.run("c", &tally{}, variantOptions(&c, "mail 2"))
		time.Sleep(30 * time.Second)
		if all := two.processor.Status()[0].Variants; all.String() != "a, b run mail 1; c runs mail 2" {
			t.Errorf("the variants are %q", all)
		}
		time.Sleep(5 * time.Minute)
		three.stop(t)
		time.Sleep(30 * time.Second)
		for name, d := range map[string]*differences{"a": &a, "b": &b} {
			told := d.all()
			if len(told) != 2 || told[0].Variants.String() != "a, b run mail 1; c runs mail 2" ||
				!told[0].Ended.IsZero() || told[0].Since.Sub(began) > 15*time.Second {
				t.Fatalf("%s was told %+v, want one beginning and one end", name, told)
			}
			lasted := told[1].Ended.Sub(told[1].Since)
			if !told[1].Since.Equal(told[0].Since) || lasted < 5*time.Minute || lasted > 6*time.Minute {
				t.Errorf("%s: the difference has lasted %v", name, lasted)
			}
		}
		if told := c.all(); len(told) != 1 {
			t.Errorf("c was told %+v, want one beginning", told)
		}
		if one.processor.Status()[0].Variants.Differ() {
			t.Error("c has ended, and still differs")
		}
		one.stop(t)
		two.stop(t)
	})
}

// Only options that decide what happens to a change make instances differ.
func TestOptionsMakeInstancesDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(o *changefeed.Options)
		want string // empty if such instances do not differ
	}{
		"other sizes and times": {func(o *changefeed.Options) {
			o.MaxItems, o.MaxLeases, o.Poll, o.Drain, o.BufferItems = 7, 1, time.Second, time.Second, 1000
		}, ""},
		"a timeout":  {func(o *changefeed.Options) { o.HandlerTimeout = time.Minute }, "timeout=1m0s"},
		"attempts":   {func(o *changefeed.Options) { o.OnFailure.MaxAttempts = 5 }, "max-attempts=5"},
		"an age":     {func(o *changefeed.Options) { o.OnFailure.MaxAge = time.Hour }, "max-age=1h0m0s"},
		"manual":     {func(o *changefeed.Options) { o.Manual = true }, "manual"},
		"a filter":   {func(o *changefeed.Options) { o.Filter = func(*feed.Change) bool { return true } }, "filter"},
		"concurrent": {func(o *changefeed.Options) { o.Concurrency = 8 }, "concurrent"},
		"dead letters": {func(o *changefeed.Options) {
			o.OnFailure.DeadLetters, o.OnFailure.MaxAttempts, o.OnFailure.HoldKeys = &letterBox{}, 5, true
		}, "max-attempts=5 dead-letters hold"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var told differences
				a := w.run("a", &tally{}, variantOptions(&told, ""))
				o := variantOptions(&differences{}, "")
				c.edit(&o)
				b := w.run("b", &tally{}, o)
				time.Sleep(time.Minute)
				all := a.processor.Status()[0].Variants
				if all.Differ() != (c.want != "") || all.Differ() != (len(told.all()) == 1) ||
					!strings.HasSuffix(all.String(), c.want) {
					t.Errorf("variants %q, told %+v, want %q", all, told.all(), c.want)
				}
				a.stop(t)
				b.stop(t)
			})
		})
	}
}

// An instance of an older version, or one that was killed and began again with another version, makes no difference.
func TestWhatIsNotKnownIsNoDifference(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindHost, Token: "old/1", Owner: "old", Epoch: "1", Expiration: time.Hour,
		}); err != nil {
			t.Fatal(err)
		}
		var told differences
		a := w.run("a", &tally{}, variantOptions(&told, "mail 1"))
		b := w.run("b", &tally{}, variantOptions(&differences{}, "mail 0"))
		time.Sleep(time.Minute)
		if len(told.all()) != 1 {
			t.Fatalf("before b is killed: told %+v, want a difference", told.all())
		}
		b.kill(t)
		b = w.run("b", &tally{}, variantOptions(&differences{}, "mail 1"))
		time.Sleep(15 * time.Second) // the record of the earlier b still looks live
		alive := 0
		for _, host := range w.records(feed.KindHost) {
			if host.Properties[notes.VariantProperty] != "" && host.State == feed.StateLive {
				alive++
			}
		}
		all := told.all()
		if alive != 3 || len(all) != 2 || all[1].Ended.IsZero() {
			t.Errorf("%d records, told %+v, want that the difference is over", alive, all)
		}
		if all := a.processor.Status()[0].Variants; len(all) != 1 || fmt.Sprint(all[0].Instances) != "[a b]" {
			t.Errorf("variants %+v", all)
		}
		a.stop(t)
		b.stop(t)
	})
}

// Two processes with one name, as on a machine whose old process was forgotten, are two instances.
func TestProcessesWithOneNameDiffer(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		a := w.run("worker", &tally{}, changefeed.Options{Variant: "mail.sh"})
		time.Sleep(time.Minute)
		b := w.run("worker", &tally{}, changefeed.Options{Variant: "other.sh"})
		time.Sleep(2 * time.Minute)
		for range 20 {
			time.Sleep(7 * time.Second)
			for _, p := range []*process{a, b} {
				if all := p.processor.Status()[0].Variants; !all.Differ() {
					t.Errorf("a process sees %v, want two variants", all)
				}
			}
		}
		a.stop(t)
		time.Sleep(time.Minute)
		if all := b.processor.Status()[0].Variants; all.Differ() {
			t.Errorf("the process that is left sees %v", all)
		}
		b.stop(t)
	})
}
