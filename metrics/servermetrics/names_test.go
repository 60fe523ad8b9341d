package servermetrics

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// The table of the documentation has each instrument of the golden file, with its unit, and no other. The numbers of
// values are those that there are.
func TestTheTableHasAllInstruments(t *testing.T) {
	text, doc := read(t, "testdata/run.txt"), read(t, "doc.go")
	var golden, told []string
	for line := range strings.Lines(text) {
		parts := strings.Fields(line)
		golden = append(golden, parts[0]+" "+parts[1])
	}
	golden = slices.Compact(golden)
	for _, row := range regexp.MustCompile(`(?m)^//\t([a-z]+\.[a-z_.]+) +(\S+)`).FindAllStringSubmatch(doc, -1) {
		told = append(told, row[1]+" "+row[2])
	}
	if slices.Sort(told); !slices.Equal(told, golden) {
		t.Errorf("doc.go has %q, the instruments are %q", told, golden)
	}
	operations := 0
	for _, line := range regexp.MustCompile(`(?m)^\t//\t(.*)$`).FindAllStringSubmatch(
		read(t, "../../cosmosrest/requestdone.go"), -1) {
		operations += len(strings.Fields(line[1]))
	}
	methods := map[string]bool{}
	for _, m := range []string{
		"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "BREW", "QUERY",
	} {
		methods[methodOf(m)] = true
	}
	for of, n := range map[string]int{
		fmt.Sprintf("db.operation.name (%d)", operations):            2,
		fmt.Sprintf("http.request.method (%d)", len(methods)):        1,
		fmt.Sprintf("http.response.status_code (%d)", len(refusals)): 1,
	} {
		if got := strings.Count(doc, of); got != n {
			t.Errorf("doc.go has %q %d times, want %d", of, got, n)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each gauge of a store has its value of the store's health.
func TestEachGaugeOfAStoreHasItsValue(t *testing.T) {
	failed := errors.New("the disk has failed")
	for about, of := range map[string]struct {
		state storeState
		want  map[string]int64
	}{
		"at work": {
			storeState{docstore.Health{Waiting: 3, Bytes: 7, Disk: docstore.Disk{Free: 5, Size: 9}}, 4},
			map[string]int64{
				"waiting": 3, "failed": 0, "full": 0, "disk.free": 5, "disk.size": 9, "size": 7, "documents": 4,
			},
		},
		"full to the last byte": {
			storeState{docstore.Health{Full: failed, Bytes: 7, Disk: docstore.Disk{Size: 9}}, 4},
			map[string]int64{
				"waiting": 0, "failed": 0, "full": 1, "disk.free": 0, "disk.size": 9, "size": 7, "documents": 4,
			},
		},
		"failed": {
			storeState{docstore.Health{Err: failed, Bytes: 7, Disk: docstore.Disk{Free: 5, Size: 9}}, 4},
			map[string]int64{
				"waiting": 0, "failed": 1, "full": 0, "disk.free": 5, "disk.size": 9, "size": 7, "documents": 4,
			},
		},
		"unknown": {
			storeState{docstore.Health{}, 0},
			map[string]int64{
				"waiting": 0, "failed": 0, "full": 0, "disk.free": unknown, "disk.size": unknown, "size": unknown,
				"documents": 0,
			},
		},
	} {
		for _, g := range storeGauges {
			name := strings.TrimPrefix(g.name, "changefeed.store.")
			if want, ok := of.want[name]; !ok || g.value(&of.state) != want {
				t.Errorf("%s: %s is %d, want %d (%t)", about, name, g.value(&of.state), want, ok)
			}
		}
	}
}
