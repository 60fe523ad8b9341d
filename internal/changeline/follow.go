package changeline

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// buffer is how many bytes are written at once: a system call for each line would cost more than reading it.
const buffer = 256 << 10

// NewWriter makes a writer for many lines.
func NewWriter(w io.Writer) *bufio.Writer { return bufio.NewWriterSize(w, buffer) }

// Follow writes the changes of a feed until there are no more, ctx ends, which is no error, or o.MaxItems are written,
// if that is more than 0. Lines are flushed after each page, so that a reader sees a change as soon as it is read. An
// error says with which flags of changefeed tail to go on.
func (f Form) Follow(ctx context.Context, to io.Writer, source feed.Source, r feed.Range, from feed.Position,
	o changefeed.PullOptions,
) error {
	w := NewWriter(to)
	written := 0
	places := map[feed.Range]string{}
	for page, err := range changefeed.Pull(ctx, source, r, from, o) {
		if err != nil {
			return fmt.Errorf("%w%s", err, goOn(places))
		}
		for i, change := range page.Changes {
			// The source knows the position after a page, and none within.
			next := ""
			if i == len(page.Changes)-1 {
				next = page.Next.Token
			}
			if err := f.Write(w, page.Range, change, next); err != nil {
				return err
			}
			if written++; written == o.MaxItems {
				return w.Flush()
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
		// After the flush: what was not written has to come again.
		advance(places, page.Range, page.Next.Token, o.Key != "")
	}
	return nil
}

// advance notes up to where a range was read. A range split since its last page is replaced by its parts:
// those of which nothing was read yet go on where the whole was.
func advance(places map[feed.Range]string, r feed.Range, token string, ofKey bool) {
	for whole, at := range places {
		if whole == r || !whole.Contains(r) {
			continue
		}
		delete(places, whole)
		for _, rest := range []feed.Range{{Min: whole.Min, Max: r.Min}, {Min: r.Max, Max: whole.Max}} {
			if !ofKey && !rest.Empty() { // the rest has nothing of the key, and sources refuse the two together
				places[rest] = at
			}
		}
	}
	places[r] = token
}

// goOn says with which flags to go on after the last change printed of each range.
func goOn(places map[feed.Range]string) string {
	var b strings.Builder
	byKey := func(a, b feed.Range) int { return strings.Compare(a.Min, b.Min) }
	for i, r := range slices.SortedFunc(maps.Keys(places), byKey) {
		if i == 0 {
			b.WriteString("; to go on: ")
		} else {
			b.WriteString(", and ")
		}
		if r != feed.FullRange() {
			fmt.Fprintf(&b, "--range %s ", r)
		}
		fmt.Fprintf(&b, "--after '%s'", places[r])
	}
	return b.String()
}
