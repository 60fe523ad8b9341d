package letters

import (
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

const (
	paris   = "4711.df8cf80227ec3237922df0ecd88385c5"
	similar = "4711.df8cf80227ec00000000000000000000"
	rome    = "4712.df8cf80227ec3237922df0ecd88385c5"
)

func TestATableHasShortIDsThatDiffer(t *testing.T) {
	for _, tt := range []struct {
		ids  []string
		want map[string]string
	}{
		{nil, map[string]string{}},
		{[]string{paris, rome, "12.0", paris}, map[string]string{
			paris: "4711.df8cf802", rome: "4712.df8cf802",
			"12.0": "12.0",
		}},
		{[]string{similar, similar, rome, paris, paris}, map[string]string{
			paris: paris[:18], similar: similar[:18],
			rome: "4712.df8cf802",
		}},
		{[]string{"4711.1", paris}, map[string]string{"4711.1": "4711.1", paris: "4711.df8cf802"}},
	} {
		if got := shortIDs(tt.ids); !maps.Equal(got, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.ids, got, tt.want)
		}
	}
}

// The beginning of an ID means a letter if it means no other.
func TestALetterIsNamedByTheBeginningOfItsID(t *testing.T) {
	at := Place{File: filepath.Join(t.TempDir(), "letters.ndjson")}
	b, err := deadletters.File(at.File, "mailer")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{paris, similar, rome, "4713.10"} {
		if err := b.Put(t.Context(), letter(id, "London", 12, feed.DispositionFailed)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ argument, want, err string }{
		{paris, paris, ""},
		{rome[:13], rome, ""},
		{rome[:9], rome, ""},
		{paris[:18], paris, ""},
		{paris[:13], "", "several letters begin so, among them 4711."},
		{rome[:8], "", "or its beginning with at least 4 digits of the hash"}, // could be a place
		{"4713.1", "", "has no such letter"},
		{"47", "", "has no such letter"},
		{"4713.10", "4713.10", ""},
	} {
		q := Query{Name: "mailer", IDs: []string{tt.argument}}
		_, all, err := q.Read(t.Context(), nil, at)
		if err != nil {
			t.Fatal(err)
		}
		found, err := q.gatherNamed(all)
		switch {
		case tt.err == "" && (err != nil || len(found) != 1 || found[0].ID != tt.want):
			t.Errorf("%s: got %v, %v, want %s", tt.argument, found, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: got %v, want that it %s", tt.argument, err, tt.err)
		}
		if strings.HasPrefix(tt.err, "several") != errors.As(err, new(usage.Error)) {
			t.Errorf("%s: %v is an error of usage: %v", tt.argument, err, errors.As(err, new(usage.Error)))
		}
	}
}
