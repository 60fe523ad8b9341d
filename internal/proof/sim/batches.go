package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// What a batch must be, before it is handled.

// checkHanded checks a batch against the model: the process has read its changes, its attempt is right and, in a strict
// world, it is next and the checkpoint before it is stored.
func (g *ledger) checkHanded(c *call, by *instance, b *feed.Batch) {
	t := g.model.tenures[place{by, b.LeaseToken}]
	if t == nil {
		g.breach("%s got a batch of %s, which it has not acquired", by, b.LeaseToken)
		return
	}
	c.tenure, t.turn = t, time.Now()
	for _, change := range b.Changes {
		if !b.Redriven && t.shown[versionOf(change)] == 0 {
			g.breach("%s got LSN %d of %s, which it has not read", by, change.LSN, b.LeaseToken)
		}
	}
	g.checkRoot(t, by, b)
	if !g.strict {
		g.checkBlocked(by, b)
	} else if g.followPage(c, t, b) {
		g.checkStored(c, t, b)
	}
	g.checkAttempt(t, by, b)
	g.countCall(b)
}

// countCall counts a call. Each of its changes may have had as many calls as the notes say, but fewer than the number
// of the batch.
func (g *ledger) countCall(b *feed.Batch) {
	for _, change := range b.Changes {
		v := versionOf(change)
		of := transaction{v.key, v.lsn}
		g.begun[v] = 1 + max(g.begun[v], min(max(g.noted[v], g.tried[of]), b.Attempt-1))
		g.tried[of] = max(g.tried[of], g.begun[v]) // notes count the calls of a transaction
	}
}

// followPage finds the place of a batch in its page: its changes are the next that the process has read.
func (g *ledger) followPage(c *call, t *tenure, b *feed.Batch) bool {
	at := reading{c.by.(*instance), b.Range}
	t.forgetUnheard(b)
	if cut := g.pageAfterCut(t, at, b); cut != nil {
		t.readOnFrom(cut)
	}
	why := g.nextPage(t, at, b)
	if why == "" {
		why = g.wrongEnd(at.by, t, t.hand.changes[t.n:], b)
	}
	if why != "" && g.isInLaterPage(t, at, b) {
		why = ""
	}
	if why != "" {
		g.breach("%s got a batch of %s from LSN %d, %s", at.by, b.LeaseToken, b.Changes[0].LSN, why)
		return false
	}
	c.page, c.end = t.hand, t.n+len(b.Changes)
	return true
}

// nextPage makes sure that the page of a tenure has more changes, and that the next of them are those of a batch.
// Otherwise nextPage says what is wrong.
func (g *ledger) nextPage(t *tenure, at reading, b *feed.Batch) (why string) {
	if t.hand == nil || t.n == len(t.hand.changes) {
		p := g.model.pageOf(t, at, b)
		if p == nil {
			return fmt.Sprintf("and has read no such page after %s", t.last)
		}
		isReached := t.hand == nil || t.reached[t.last]
		if t.takePage(p, 0, b); isReached {
			t.reached[p.from] = true
		}
	}
	if rest := t.hand.changes[t.n:]; !begins(rest, b) {
		return fmt.Sprintf("%d changes, where LSN %d is next", len(b.Changes), rest[0].lsn)
	}
	return ""
}

// takePage records that the next batches come from a page, whose first n changes are done.
func (t *tenure) takePage(p *page, n int, b *feed.Batch) {
	t.inherit(p, b)
	t.next[t.hand] = p
	t.hand, t.n, t.line = p, n, append(t.line, p.changes...)
}

// wrongEnd says what is wrong with the end of a batch, with which the rest of a page begins. A page is one batch,
// unless some of its changes have failed more often, one of its size took too long, or a transaction went beyond the
// most.
func (g *ledger) wrongEnd(by *instance, t *tenure, rest []version, b *feed.Batch) string {
	n := len(b.Changes)
	if n == len(rest) {
		return ""
	}
	next := slices.IndexFunc(rest[n:], func(v version) bool { return v.lsn != rest[n].lsn })
	if next < 0 {
		next = len(rest) - n
	}
	isFull := by.opts.MaxItems > 0 && n+next > by.opts.MaxItems
	switch {
	case rest[n].lsn == rest[n-1].lsn:
		return fmt.Sprintf("that ends within the transaction of LSN %d", rest[n].lsn)
	case t.calls[rest[n]] == t.calls[rest[0]] && !t.late && !isFull &&
		!g.model.isCutBetween(by, t, rest[n-1].lsn, rest[n].lsn):
		return fmt.Sprintf("with %d of %d changes for no reason", n, len(rest))
	}
	return ""
}

// isInLaterPage reports whether a batch comes from a page that was read later than the page of a tenure, and takes that
// page. Two leases that are about to be joined meet at an LSN, which may be in the middle of a page. If they are not
// joined, the process reads on from there, and its first batches may be the same as if it had gone on in the page.
func (g *ledger) isInLaterPage(t *tenure, at reading, b *feed.Batch) bool {
	pages := g.model.pages[at]
	for _, p := range slices.Backward(pages[1+slices.Index(pages, t.hand):]) {
		n := slices.IndexFunc(p.changes, func(v version) bool { return v == versionOf(b.Changes[0]) })
		isNext := n >= 0 && begins(p.changes[n:], b) && !t.hasLeft(lsnOf(p.from)) &&
			!slices.ContainsFunc(p.changes[:n], func(v version) bool { return !t.passed[v] && !t.asked[v] })
		if isNext && g.wrongEnd(at.by, t, p.changes[n:], b) == "" {
			t.takePage(p, n, b)
			return true
		}
	}
	return false
}

// inherit gives the changes of a page the calls that the lease said when the process acquired it. If the first batch
// has the number one all the same, the notes do not count after a merge, or a later version has replaced the changes
// that they name.
func (t *tenure) inherit(p *page, b *feed.Batch) {
	isFirst := t.hand == nil && p.from == t.root
	if isFirst && b.Attempt == 1 && len(t.aside.done.Tried) > 0 {
		t.isOther, t.first, t.aside.done.Tried = t.first > 0, 0, nil
	}
	for _, v := range p.changes {
		for _, run := range t.aside.done.Tried {
			if run.Has(string(v.key), v.lsn, func() string { return "" }) {
				t.calls[v] = max(t.calls[v], run.Calls)
			}
		}
	}
	if isFirst {
		t.calls[p.changes[0]] = t.first
	}
}

// pageOf is the page that begins with a batch and was read from where the process is.
func (m *model) pageOf(t *tenure, at reading, b *feed.Batch) *page {
	from := t.emptyTokens()
	for _, p := range slices.Backward(m.pages[at]) {
		if begins(p.changes, b) && (t.hand == nil && t.root == "" || slices.Contains(from, p.from)) {
			return p
		}
	}
	return nil
}

// pageAfterCut is the page that begins with a batch, if the process has cut the page before: two leases that are about
// to be joined meet at one LSN, and read on from there if they are not joined. Nothing is skipped, because all changes
// read before the beginning of the page are done.
func (g *ledger) pageAfterCut(t *tenure, at reading, b *feed.Batch) *page {
	isAtEnd := t.hand == nil || t.n == len(t.hand.changes)
	if !isAtEnd && begins(t.hand.changes[t.n:], b) {
		return nil
	}
	least, from := lsnOf(t.root), t.emptyTokens()
	if t.hand != nil {
		least = lsnOf(t.hand.from)
	}
	for _, p := range slices.Backward(g.model.pages[at]) {
		switch {
		case !begins(p.changes, b):
		case isAtEnd && slices.Contains(from, p.from):
			return nil // no page was cut
		case least <= lsnOf(p.from) && !t.hasLeft(lsnOf(p.from)):
			return p
		}
	}
	return nil
}

// hasLeft reports whether a change read is neither done nor after an LSN. A change that was confirmed is done, also if
// the call fails after that.
func (t *tenure) hasLeft(lsn int64) bool {
	for v := range t.shown {
		if v.lsn <= lsn && !t.passed[v] && !t.asked[v] {
			return true
		}
	}
	return false
}

// readOnFrom records that the process has cut its page, or one without a change up to there, where another page begins.
func (t *tenure) readOnFrom(p *page) {
	isReached := t.last == t.root || t.reached[t.last]
	if t.hand != nil {
		t.hand.changes, t.hand.next = t.hand.changes[:t.n], p.from
	}
	t.last, t.idle, t.reached[p.from] = p.from, nil, isReached
}

// begins reports whether some changes begin with those of a batch.
func begins(changes []version, b *feed.Batch) bool {
	if len(b.Changes) > len(changes) {
		return false
	}
	for i, c := range b.Changes {
		if changes[i] != versionOf(c) {
			return false
		}
	}
	return true
}

// checkAttempt checks the number of a batch. Unless the world is strict, the notes of the last owner may be older than
// its calls, so the number may be lower than all calls that were begun, but not than those of this owner.
func (g *ledger) checkAttempt(t *tenure, by *instance, b *feed.Batch) {
	least, most := 0, 0
	for _, change := range b.Changes {
		v := versionOf(change)
		least, most = max(least, t.calls[v]), max(most, g.begun[v], g.noted[v], g.tried[transaction{v.key, v.lsn}])
	}
	switch {
	case b.Redriven: // its letter counts the calls of the owners that have written it
		least = 0
	case !g.strict && b.Attempt == t.first+1: // the first change has what the lease says, also if it is another by now
		first := versionOf(b.Changes[0])
		if g.begun[first] = max(g.begun[first], t.first); b.Attempt > most+1 {
			most, t.first = t.first, 0
		}
	case g.strict:
		most = least
	}
	if b.Attempt < least+1 || b.Attempt > most+1 {
		g.breach("attempt: %s got the batch of %s from LSN %d as attempt %d, want %d to %d", by, b.LeaseToken,
			b.Changes[0].LSN, b.Attempt, least+1, most+1)
	}
}

// checkStored checks that the lease is stored as it must be before the next batch: up to the batch before the last one,
// or the last one if that has failed.
func (g *ledger) checkStored(c *call, t *tenure, b *feed.Batch) {
	stored := g.model.leases[b.LeaseToken]
	if stored.by != c.by {
		return // stolen, or deleted: it will hear of it
	}
	want := t.calls[t.hand.changes[t.n]]
	counted := stored.Attempts == want || t.manual && stored.Attempts < want || t.isOther && t.last == t.root
	if stored.Position.Token == t.hand.tokenBefore(t.n) && !counted {
		g.breach("attempts of %s at %v are %d in the store, want %d", b.LeaseToken, stored.Position, stored.Attempts,
			want)
	}
	if n := t.countUnstored(stored.Position.Token) - t.newest; !t.manual && n > max(0, t.every-1) {
		g.breach("checkpoint: %s got the next batch of %s with %d changes done since %v and before its last batch, every %d",
			c.by, b.LeaseToken, n, stored.Position, t.every)
	}
}

// countUnstored is how many changes are done and come after a stored position.
func (t *tenure) countUnstored(stored string) int {
	t.done = slices.DeleteFunc(t.done, func(lsn int64) bool { return lsn <= lsnOf(stored) })
	return len(t.done)
}
