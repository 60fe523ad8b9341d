package changeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// numbers is a source of one change a page. It fails after some pages, or ends.
type numbers struct {
	pages int
	err   error
}

func (numbers) Partitions(context.Context) ([]feed.Partition, error) {
	return []feed.Partition{{ID: "0", Range: feed.FullRange()}}, nil
}

func (s numbers) Read(_ context.Context, r feed.Range, from feed.Position, _ feed.ReadOptions) (feed.Page, error) {
	n := len(from.Token)
	if n == s.pages {
		return feed.Page{Range: r, Next: from}, s.err
	}
	id := fmt.Sprintf("%s/%d", r, n)
	return feed.Page{
		Range: r, Next: feed.At(strings.Repeat("x", n+1)),
		Changes: []feed.Change{{
			ID: id, PartitionKey: feed.Key(id), LSN: int64(n),
			Body: json.RawMessage(`{"id":"` + id + `"}`),
		}},
	}, nil
}

// halved is a feed that is split after its first page. Its second half fails.
type halved struct{ numbers }

func (halved) Partitions(context.Context) ([]feed.Partition, error) {
	return []feed.Partition{
		{ID: "1", Range: feed.Range{Max: "7F"}}, {ID: "2", Range: feed.Range{Min: "7F", Max: "FF"}},
	}, nil
}

func (s halved) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	switch {
	case r == feed.FullRange() && from.Token != "":
		return feed.Page{}, feed.ErrGone
	case r.Min == "7F":
		return feed.Page{}, s.err
	}
	return s.numbers.Read(ctx, r, from, o)
}

func follow(t *testing.T, f Form, s feed.Source, r feed.Range, most int) (lines []string, err error) {
	t.Helper()
	var b strings.Builder
	err = f.Follow(t.Context(), &b, s, r, feed.Position{Start: feed.FromBeginning()},
		changefeed.PullOptions{ReadOptions: feed.ReadOptions{MaxItems: most}})
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), err
}

func TestAFeedIsWrittenToItsEndOrSoManyLines(t *testing.T) {
	for most, want := range map[int]int{0: 4, 1: 1, 3: 3, 9: 4} {
		if lines, err := follow(t, Form{}, numbers{pages: 4}, feed.FullRange(), most); len(lines) != want ||
			err != nil {
			t.Errorf("at most %d: %q, %v, want %d lines", most, lines, err, want)
		}
	}
}

func TestALineWithMetadataHasThePositionAfterIt(t *testing.T) {
	lines, err := follow(t, Form{Meta: true}, numbers{pages: 1}, feed.Range{Max: "7F"}, 0)
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], `"range":"-7F"`) ||
		!strings.HasSuffix(lines[0], `"next":"x"}`) {
		t.Errorf("got %q, %v", lines, err)
	}
}

// Whoever was interrupted can go on with what the error says.
func TestAnErrorSaysWithWhichFlagsToGoOn(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		pages int
		r     feed.Range
		want  string
	}{
		{0, feed.FullRange(), "read -FF: failed"},
		{2, feed.Range{Max: "7F"}, "read -7F: failed; to go on: --range -7F --after 'xx'"},
	} {
		if _, err := follow(t, Form{}, numbers{tt.pages, failed}, tt.r, 0); !errors.Is(err, failed) ||
			err.Error() != tt.want {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	full, half := feed.FullRange(), feed.Range{Max: "7F"}
	if got := goOn(map[feed.Range]string{full: "x"}); got != "; to go on: --after 'x'" {
		t.Errorf("of all: %q", got)
	}
	if got := goOn(map[feed.Range]string{
		{Min: "7F", Max: "FF"}: "y",
		half:                   "x",
	}); got != "; to go on: --range -7F --after 'x', and --range 7F-FF --after 'y'" {
		t.Errorf("of both: %q", got)
	}
}

// What was read since a split is not read again, and what was not read is not left out.
func TestAnErrorAfterASplitNamesEachPartOnce(t *testing.T) {
	failed := errors.New("failed")
	want := "read 7F-FF: failed; to go on: --range -7F --after 'xx', and --range 7F-FF --after 'x'"
	lines, err := follow(t, Form{}, halved{numbers{9, failed}}, feed.FullRange(), 0)
	if len(lines) != 2 || err == nil || err.Error() != want {
		t.Errorf("got %q, %v, want %q", lines, err, want)
	}
	places := map[feed.Range]string{feed.FullRange(): "x"}
	advance(places, feed.Range{Min: "3F", Max: "7F"}, "y", true)
	if goOn(places) != "; to go on: --range 3F-7F --after 'y'" {
		t.Errorf("of a key: %q", goOn(places))
	}
}
