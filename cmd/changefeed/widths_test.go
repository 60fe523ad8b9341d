package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/letters"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

var updateWidths = flag.Bool("update-widths", false, "write testdata/widths.txt")

// The tables of ranges, containers, dlq list and query are as they were read at 40, 80 and 200 columns. No line is
// wider than the terminal, and names that a user copies are whole.
func TestTablesFitEachTerminal(t *testing.T) {
	tables := []struct {
		command string
		copied  []string // what a user copies from the table, at any width
		write   func(at terminal.Terminal) string
	}{
		{"ranges", []string{"-20000000000000000000000000000000", "20000000000000000000000000000000-FF"}, rangesAt},
		{"containers", []string{"shop/orders", "東京/注文"}, containersAt},
		{"dlq list", []string{"4711.df8cf802", "12.4e074085", "東京"}, lettersAt},
		{"query", []string{"東京都千代田区", "order-17"}, queryAt},
	}
	var all strings.Builder
	for _, table := range tables {
		for _, width := range []int{40, 80, 200} {
			text := table.write(terminal.Terminal{Width: func() int { return width }})
			fmt.Fprintf(&all, "%s, %d columns\n%s\n%s\n", table.command, width, strings.Repeat("-", width), text)
			for line := range strings.Lines(text) {
				if n := terminal.Width(strings.TrimRight(line, "\n")); n >= width {
					t.Errorf("%s at %d columns: a line has %d: %s", table.command, width, n, line)
				}
			}
			for _, word := range table.copied {
				if !strings.Contains(text, word) {
					t.Errorf("%s at %d columns does not show %s whole:\n%s", table.command, width, word, text)
				}
			}
		}
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

func rangesAt(at terminal.Terminal) string {
	half := feed.FullRange().Cut(2)
	return terminal.Table(partitionTable([]feed.Partition{
		{ID: "1", Range: half[0], Parents: []string{"0"}}, {ID: "2", Range: half[1]},
	}), at.Room())
}

func containersAt(at terminal.Terminal) string {
	return terminal.Table(containerTable([]items.Container{
		{
			Name: "shop/orders", Paths: []string{"/tenant", "/user"}, Partitions: new(16),
			Documents: new(int64(1204000)), TTL: new(86400), Retention: new(604800.0), Throughput: new(40000),
		},
		{Name: "東京/注文", Paths: []string{"/区"}},
	}), at.Room())
}

func lettersAt(at terminal.Terminal) string {
	letter := feed.DeadLetter{
		ID: "4711.df8cf802a1b2c3d4e5f6071829304152", Disposition: feed.DispositionFailed, Attempts: 3,
		Parked: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Cause:  "send mail: dial tcp 10.0.0.7:587: connect: connection refused by a host that has been away since Monday",
		Change: feed.Change{ID: "20000000-0000-4000-8000-0000000000FF", PartitionKey: feed.Key("東京")},
	}
	held := letter
	held.ID, held.Disposition, held.Cause = "12.4e07408562bedb8b60ce05c1decfe3ad", feed.DispositionHeld, ""
	var text strings.Builder
	err := letters.WriteTable(&text, at, "mailer", "shop/letters", func(yield func(feed.DeadLetter, error) bool) {
		_ = yield(letter, nil) && yield(held, nil)
	})
	if err != nil {
		return err.Error()
	}
	return text.String()
}

func queryAt(at terminal.Terminal) string {
	return terminal.Columns([][]string{
		{"id", "city", "street", "n", "placed"},
		{"order-17", "東京都千代田区", "丸の内一丁目", "3", "2026-01-02T03:04:05Z"},
		{"order-4", "London", "Elm Street", "1204", "-"},
	}, at.Room())
}
