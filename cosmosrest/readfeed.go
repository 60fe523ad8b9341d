package cosmosrest

import (
	"net/http"
	"strconv"
)

// readFeed serves GET docs: a page of the documents, in the order of their last writes
// in each range.
func (c *call) readFeed() error {
	if err := c.allow(actionReadChangeFeed); err != nil {
		return err
	}
	cont, err := c.container()
	if err != nil {
		return err
	}
	sel, err := c.selection(cont)
	if err != nil {
		return err
	}
	rows, err := c.pageRows()
	if err != nil {
		return err
	}
	k, err := c.continuation(cont.RID())
	if err == nil {
		err = k.fits(c, 0)
	}
	if err != nil {
		return err
	}
	s := scan{ctx: c.ctx, meter: &c.meter, cont: cont, rng: sel.rng}
	if sel.key != "" {
		s.keys, s.pinned = append(s.keys, sel.key), true
	}
	sub, err := sel.within(cont)
	if err != nil {
		return err
	}
	first := max(sub.Min, sel.rng.Min)
	part := cont.PartitionAt(first)
	if err := c.consistent(part, cont.Newest(first)); err != nil {
		return err
	}
	if err := c.admit(cont, part.ID); err != nil {
		return err
	}
	c.session(part.ID, cont.Newest(first))
	b := newFeedBody(cont.RID())
	defer b.free()
	more, err := s.fill(b, rows, k)
	if err != nil {
		return err
	}
	if more {
		s.save(&k)
		c.set(answerContinuation, k.encode())
	}
	c.spend(cont, part.ID, chargeScan(s.docs, s.bytes))
	c.set(answerItemCount, strconv.Itoa(b.count))
	return c.reply(http.StatusOK, b.finish())
}

// fill puts a page of whole documents into a body, and tells whether another may follow.
func (s *scan) fill(b *feedBody, rows int, from continuation) (more bool, err error) {
	if err := s.begin(from); err != nil {
		return false, err
	}
	err = s.run(func(d record) (int, bool, error) {
		if d.skip > 0 { // by a query, which has rows of it
			return allRows, true, nil
		}
		if rows > 0 && b.count == rows || !b.fits(d.body) {
			more = true
			return 0, false, nil
		}
		b.add(d.body)
		return allRows, true, nil
	})
	return more, err
}
