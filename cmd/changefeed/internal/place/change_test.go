package place

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
)

// A wrong partition must not be split, so ids are verified before anything is changed.
func TestPartitionsThatAreSplitOrMergedAreNamed(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	stored, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		t.Fatal(err)
	}
	c := Stored(stored, Address{})
	for _, tt := range []struct {
		operation, id, other, want string // want is an error of usage
		ranges                     string // afterwards
	}{
		{"split", "", "here", "--at is here: want hex", "0 -FF"},
		{"split", "7", "", "ID is 7: there is no such partition: want one of 0", "0 -FF"},
		{"split", "", "1f", "", "1 -1F, 2 1F-FF"},
		{"split", "", "", "ID is missing: want one of 1, 2", "1 -1F, 2 1F-FF"},
		{"merge", "1", "0", "ID is 0: there is no such partition: want one of 1, 2", "1 -1F, 2 1F-FF"},
		{"merge", "1", "2", "", "3 -FF"},
	} {
		var err error
		if tt.operation == "split" {
			_, err = c.Split(t.Context(), tt.id, tt.other)
		} else {
			_, err = c.Merge(t.Context(), tt.id, tt.other)
		}
		missing := strings.Contains(tt.want, "there is no such partition")
		if (err == nil) != (tt.want == "") || err != nil && (errors.As(err, new(usage.Missing)) != missing ||
			errors.As(err, new(usage.Error)) == missing || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%s %s %s: got %v, want %q", tt.operation, tt.id, tt.other, err, tt.want)
		}
		parts, err := c.Source.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ranges []string
		for _, p := range parts {
			ranges = append(ranges, p.ID+" "+p.Range.String())
		}
		if got := strings.Join(ranges, ", "); got != tt.ranges {
			t.Errorf("%s %s %s: partitions %s, want %s", tt.operation, tt.id, tt.other, got, tt.ranges)
		}
	}
}
