package variants_test

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/proof/rewriter"
	"github.com/millrace/changefeed/internal/variants"
)

// host is the presence record of an instance that has begun a number of seconds after the first.
func host(name, handler string, since int64) feed.Record {
	r := feed.Record{Kind: feed.KindHost, Owner: name, Properties: map[string]string{"team": "red"}}
	r = written(r, since, since)
	variants.Show(&r, feed.Variant{Handler: handler, Program: "shop v1"}, time.Unix(since, 0))
	return r
}

// written sets when a record was written, in seconds by the clocks of the writer and of the store.
func written(r feed.Record, own, store int64) feed.Record {
	r.Timestamp, r.Updated = time.Unix(own, 0), time.Unix(store, 0)
	return r
}

// Instances are grouped by what they run, the largest group first. Of two records with one name, the later life counts.
func TestInstancesAreGroupedByWhatTheyRun(t *testing.T) {
	silent, spoilt := host("old", "x", 1), host("spoilt", "x", 1)
	delete(silent.Properties, notes.VariantProperty)
	spoilt.Properties[notes.VariantProperty] = "no JSON"
	for name, c := range map[string]struct {
		live []feed.Record
		want string
	}{
		"none": {nil, ""},
		"two groups": {
			[]feed.Record{host("z", "1", 1), host("c", "2", 1), host("b", "2", 1)},
			"b, c run 2; z runs 1",
		},
		"groups alike": {[]feed.Record{host("z", "1", 1), host("b", "2", 1)}, "b runs 2; z runs 1"},
		"a later life": {
			[]feed.Record{host("a", "1", 1), host("a", "2", 2), host("b", "1", 1)},
			"a runs 2; b runs 1",
		},
		"an earlier life": {
			[]feed.Record{host("a", "2", 2), host("a", "1", 1), host("b", "1", 1)},
			"a runs 2; b runs 1",
		},
		"two processes with one name": {
			[]feed.Record{written(host("a", "1", 1), 60, 100), written(host("a", "2", 50), 51, 91)},
			"a runs 1; a runs 2",
		},
		"killed before the next life": {
			[]feed.Record{written(host("a", "1", 1), 49, 89), written(host("a", "2", 50), 60, 100), host("b", "1", 1)},
			"a runs 2; b runs 1",
		},
		"not known": {[]feed.Record{silent, host("a", "1", 1), spoilt, host("b", "2", 1)}, "a runs 1; b runs 2"},
	} {
		for range 20 { // groups come from a map, whose order is random
			if got := variants.Among(c.live).String(); got != c.want {
				t.Errorf("%s: got %q, want %q", name, got, c.want)
			}
		}
	}
	if all := variants.Among([]feed.Record{host("a", "1", 1), host("b", "1", 2), silent}); all.Differ() {
		t.Errorf("equal instances with different beginnings differ: %v", all)
	}
}

// Slow batches are shown for as long as there are some.
func TestSlowBatchesAreReadAsTheyWereShown(t *testing.T) {
	r, now := host("a", "1", 1), time.Unix(1000, 0)
	variants.ShowSlow(&r, []feed.SlowBatch{
		{Lease: "-FF", Changes: 3, Since: now.Add(-time.Minute), Usual: 10 * time.Millisecond},
	}, now)
	want := variants.Slow{Lease: "-FF", For: 60_000, Usual: 10, Changes: 3}
	if all := variants.ReadSlow(r); len(all) != 1 || all[0] != want {
		t.Errorf("read %+v, want %+v", all, want)
	}
	if _, known := variants.Read(r); !known {
		t.Error("the variant is gone")
	}
	if like := rewriter.LooksLike(r.Properties[notes.SlowProperty]); like != "" {
		t.Errorf("the text looks like a %s", like)
	}
	variants.ShowSlow(&r, make([]feed.SlowBatch, 100), now)
	if n := len(variants.ReadSlow(r)); n != 20 {
		t.Errorf("%d of 100 slow batches are shown, want 20", n)
	}
	variants.ShowSlow(&r, nil, now)
	if text, is := r.Properties[notes.SlowProperty]; is {
		t.Errorf("no batch is slow, and the record says %q", text)
	}
}

// A record keeps the variant and its other properties, and no program takes the text for something else.
func TestAVariantIsReadAsItWasShown(t *testing.T) {
	r := host("a", "mail \"1\" <2>", 7)
	v, known := variants.Read(r)
	if !known || v.Handler != "mail \"1\" <2>" || v.Program != "shop v1" || r.Properties["team"] != "red" {
		t.Errorf("read %+v, %v of %v", v, known, r.Properties)
	}
	if like := rewriter.LooksLike(r.Properties[notes.VariantProperty]); like != "" {
		t.Errorf("the text looks like a %s", like)
	}
	if _, known := variants.Read(feed.Record{}); known {
		t.Error("a record without a variant has one")
	}
}
