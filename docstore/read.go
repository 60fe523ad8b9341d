package docstore

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/epk"
)

// How a read works. The head is taken first, then the layout, then the cursors: what
// was published up to that head is in the logs of that layout and in the state of those
// cursors. Nothing above the head is shown. A version that is missing because of a later
// write, one that was applied but is not yet safe, would be missed if that write were
// lost: so a page is returned when everything applied before it is safe.

const (
	defaultItems = 1000
	maxPageBytes = 4 << 20
)

// selection is which changes a read shows.
type selection struct {
	rng  changefeed.Range
	pk   string // of one logical partition; empty is all
	mode changefeed.Mode
	begin
}

// Read implements [changefeed.Source]. A page holds up to 1,000 changes unless
// MaxItems says otherwise, and about 4 MB. Its charge is one request unit and one for
// each KB of bodies.
func (c *Container) Read(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (changefeed.Page, error) {
	page, err := c.read(ctx, r, from, o)
	if err != nil {
		return changefeed.Page{}, fmt.Errorf("read feed of %q: %w", c.ID(), err)
	}
	return page, nil
}

func (c *Container) read(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (changefeed.Page, error) {
	if err := c.usable(ctx); err != nil {
		return changefeed.Page{}, err
	}
	head := c.head.Load()
	l := c.layout.Load()
	part, sel, err := l.choose(r, o)
	if err != nil {
		return changefeed.Page{}, err
	}
	newest := min(part.newest.Load(), head)
	if sel.begin, err = l.begin(from, o, head); err != nil {
		return changefeed.Page{}, err
	}
	b := c.newPage(o.MaxItems)
	next := max(head, sel.lsn)
	if sel.lsn < head {
		if next, err = c.collect(ctx, b, l, part, sel, head); err != nil {
			return changefeed.Page{}, err
		}
		if err := c.db.settle(ctx); err != nil {
			return changefeed.Page{}, err
		}
	}
	if o.Mode == changefeed.AllVersionsAndDeletes && sel.lsn < c.layout.Load().floor {
		return changefeed.Page{}, tooOld(l, sel.lsn) // retention has overtaken the read
	}
	return changefeed.Page{
		Changes: b.finish(),
		Next:    changefeed.Position{Token: token(next), Start: from.Start},
		Head:    newest,
		Session: fmt.Sprintf("%s:-1#%d", part.id(), newest),
		Charge:  1 + float64(len(b.slab)/1024),
	}, nil
}

func tooOld(l *layout, lsn int64) error {
	return fmt.Errorf("%w: LSN %d of container %q, whose versions begin behind %d", changefeed.ErrTooOld, lsn, l.spec.ID, l.floor)
}

// choose finds the partition that a read is about.
func (l *layout) choose(r changefeed.Range, o changefeed.ReadOptions) (*partition, selection, error) {
	sel := selection{rng: r, mode: o.Mode}
	if o.Key != "" {
		var err error
		if sel.rng, sel.pk, err = l.keyRange(string(o.Key)); err != nil {
			return nil, sel, err
		}
		if sel.rng = sel.rng.Intersect(r); sel.rng.Empty() {
			return nil, sel, refuse("partition key %s is not in range %s", o.Key, r)
		}
	}
	part, err := l.sole(sel.rng)
	return part, sel, err
}

// keyRange is where a logical partition is in the key space, and the one text of its
// key. A hierarchical key may lack its last levels: then the range is that of all keys
// that begin so, and the text is empty.
func (l *layout) keyRange(key string) (changefeed.Range, string, error) {
	pk, err := canonicalKey(key)
	if err != nil {
		return changefeed.Range{}, "", err
	}
	parsed, err := epk.Parse(pk)
	if err == nil && l.kind == epk.MultiHash && len(parsed) > 0 && len(parsed) < len(l.paths) {
		lo, hi, err := epk.Prefix(parsed)
		return changefeed.Range{Min: lo, Max: hi}, "", err
	}
	h, err := l.hashKey(pk)
	return changefeed.Range{Min: h, Max: h + "0"}, pk, err
}

// collect fills a page with the changes in (sel.lsn, head] and returns the LSN behind it.
func (c *Container) collect(ctx context.Context, b *pageBuilder, l *layout, part *partition, sel selection, head int64) (next int64, err error) {
	f, err := c.openFeed(l, part, sel, head)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := f.close(); err == nil {
			err = cerr
		}
	}()
	now := time.Now().UnixMilli()
	last := sel.lsn
	for steps := 0; ; steps++ {
		if steps%1024 == 1023 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		t := f.lowest()
		if t == nil {
			return head, f.err()
		}
		if b.full() && t.lsn != last {
			return last, f.err()
		}
		v, shown, err := t.look(&sel)
		if err != nil {
			return 0, err
		}
		if shown {
			e, err := decodeEntry(v)
			if err != nil {
				return 0, fmt.Errorf("%w: LSN %d: %w", ErrCorrupt, t.lsn, err)
			}
			if sel.shows(&e, &l.spec, now) {
				if err := b.add(c, part, &e, t.lsn, sel.mode); err != nil {
					return 0, err
				}
				last = t.lsn
			}
		}
		t.step()
	}
}

// shows tells whether a version that lives is in the selection.
func (s *selection) shows(e *entry, spec *ContainerSpec, now int64) bool {
	switch {
	case s.pk != "" && s.pk != string(e.pk):
		return false
	case s.since != anyTime && e.time/1000 <= s.since:
		return false
	}
	return s.mode == changefeed.AllVersionsAndDeletes || !spec.expired(e.time, e.ttl, now)
}
