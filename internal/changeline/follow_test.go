package changeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/changefeed"
)

// numbers is a source of one change a page. It fails after some pages, or ends.
type numbers struct {
	pages int
	err   error
}

func (numbers) Partitions(context.Context) ([]changefeed.Partition, error) {
	return []changefeed.Partition{{ID: "0", Range: changefeed.FullRange()}}, nil
}

func (s numbers) Read(_ context.Context, r changefeed.Range, from changefeed.Position, _ changefeed.ReadOptions) (changefeed.Page, error) {
	n := len(from.Token)
	if n == s.pages {
		return changefeed.Page{Range: r, Next: from}, s.err
	}
	id := fmt.Sprintf("%s/%d", r, n)
	return changefeed.Page{
		Range: r, Next: changefeed.At(strings.Repeat("x", n+1)),
		Changes: []changefeed.Change{{ID: id, PartitionKey: changefeed.Key(id), LSN: int64(n), Body: json.RawMessage(`{"id":"` + id + `"}`)}},
	}, nil
}

// halved is a feed that is split after its first page. Its second half fails.
type halved struct{ numbers }

func (halved) Partitions(context.Context) ([]changefeed.Partition, error) {
	return []changefeed.Partition{
		{ID: "1", Range: changefeed.Range{Max: "7F"}}, {ID: "2", Range: changefeed.Range{Min: "7F", Max: "FF"}},
	}, nil
}

func (s halved) Read(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (changefeed.Page, error) {
	switch {
	case r == changefeed.FullRange() && from.Token != "":
		return changefeed.Page{}, changefeed.ErrGone
	case r.Min == "7F":
		return changefeed.Page{}, s.err
	}
	return s.numbers.Read(ctx, r, from, o)
}

func follow(t *testing.T, f Form, s changefeed.Source, r changefeed.Range, most int) (lines []string, err error) {
	t.Helper()
	var b strings.Builder
	err = f.Follow(t.Context(), &b, s, r, changefeed.Position{Start: changefeed.FromBeginning()}, changefeed.PullOptions{ReadOptions: changefeed.ReadOptions{MaxItems: most}})
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), err
}

func TestAFeedIsWrittenToItsEndOrSoManyLines(t *testing.T) {
	for most, want := range map[int]int{0: 4, 1: 1, 3: 3, 9: 4} {
		if lines, err := follow(t, Form{}, numbers{pages: 4}, changefeed.FullRange(), most); len(lines) != want || err != nil {
			t.Errorf("at most %d: %q, %v, want %d lines", most, lines, err, want)
		}
	}
}

func TestALineWithMetadataHasThePositionAfterIt(t *testing.T) {
	lines, err := follow(t, Form{Meta: true}, numbers{pages: 1}, changefeed.Range{Max: "7F"}, 0)
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], `"range":"-7F"`) || !strings.HasSuffix(lines[0], `"next":"x"}`) {
		t.Errorf("got %q, %v", lines, err)
	}
}

// Whoever was interrupted can go on with what the error says.
func TestAnErrorSaysWithWhichFlagsToGoOn(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		pages int
		r     changefeed.Range
		want  string
	}{
		{0, changefeed.FullRange(), "read -FF: failed"},
		{2, changefeed.Range{Max: "7F"}, "read -7F: failed; to go on: --range -7F --after 'xx'"},
	} {
		if _, err := follow(t, Form{}, numbers{tt.pages, failed}, tt.r, 0); !errors.Is(err, failed) || err.Error() != tt.want {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	full, half := changefeed.FullRange(), changefeed.Range{Max: "7F"}
	if got := goOn(map[changefeed.Range]string{full: "x"}); got != "; to go on: --after 'x'" {
		t.Errorf("of all: %q", got)
	}
	if got := goOn(map[changefeed.Range]string{{Min: "7F", Max: "FF"}: "y", half: "x"}); got != "; to go on: --range -7F --after 'x', and --range 7F-FF --after 'y'" {
		t.Errorf("of both: %q", got)
	}
}

// What was read since a split is not read again, and what was not read is not left out.
func TestAnErrorAfterASplitNamesEachPartOnce(t *testing.T) {
	failed := errors.New("failed")
	want := "read 7F-FF: failed; to go on: --range -7F --after 'xx', and --range 7F-FF --after 'x'"
	lines, err := follow(t, Form{}, halved{numbers{9, failed}}, changefeed.FullRange(), 0)
	if len(lines) != 2 || err == nil || err.Error() != want {
		t.Errorf("got %q, %v, want %q", lines, err, want)
	}
	places := map[changefeed.Range]string{changefeed.FullRange(): "x"}
	advance(places, changefeed.Range{Min: "3F", Max: "7F"}, "y", true)
	if goOn(places) != "; to go on: --range 3F-7F --after 'y'" {
		t.Errorf("of a key: %q", goOn(places))
	}
}
