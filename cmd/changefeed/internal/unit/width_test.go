package unit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

var updateWidths = flag.Bool("update-widths", false, "write testdata/widths.txt")

// The tables of leases are as they were read at 40, 80 and 200 columns, and no line is wider than the terminal.
func TestLeasesFitEachTerminal(t *testing.T) {
	half := feed.FullRange().Cut(2)
	now := time.Now()
	listing := &admin.Listing{
		At: now, Holes: make([]admin.Hole, 1), Instances: []admin.Instance{{Presence: admin.Running, Weight: 1}},
		Leases: []admin.Lease{
			{Lag: &changefeed.Lag{Pending: 1204, Exact: true, Oldest: now.Add(-192 * time.Second)}}, {},
		},
	}
	u := Unit{Processor: "mailer", Container: "shop/orders", listing: listing, Rows: []Row{
		{
			Kind: KindLease, Lease: half[0].String(), Range: half[0].String(), Owner: "worker-7f9c-郵便局", Silent: 4,
			Position: `"1204"`, Lag: new(int64(1204)), Exact: true, Waited: new(192.0), State: "live", Attempts: 3,
			Notes: []string{
				"the batch after its position has failed 3 times", "partition keys set aside, to be read again: 2",
			},
		},
		{
			Kind: KindLease, Lease: half[1].String(), Range: half[1].String(), Silent: 7200, Position: "beginning",
			State: "free", Notes: []string{"free: nobody works on it", "lag unknown: the container cannot be read"},
		},
		{
			Kind: KindHole, Range: "AA-BB", Notes: []string{"no lease covers these keys: running processors repair that"},
		},
		{Kind: KindInstance, Owner: "worker-7f9c", Presence: admin.Running},
	}}
	var all strings.Builder
	for _, width := range []int{40, 80, 200} {
		at := terminal.Terminal{Width: func() int { return width }}
		var text strings.Builder
		if err := WriteTables(&text, "shop/leases", []Unit{u}, at); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if n := terminal.Width(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("at %d columns a line has %d: %s", width, n, line)
			}
		}
		fmt.Fprintf(&all, "%d columns\n%s\n%s\n", width, strings.Repeat("-", width), text.String())
	}
	path := filepath.Join("testdata", "widths.txt")
	if *updateWidths {
		if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != all.String() {
		t.Errorf("the tables are other than in %s (-update-widths writes them), %v:\n%s", path, err, all.String())
	}
}
