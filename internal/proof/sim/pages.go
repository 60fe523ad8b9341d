package sim

import (
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The pages that each process has read.

// page is an answer to a read of the feed.
type page struct {
	from, next string
	changes    []version
}

// tokenBefore is the token before the nth change: that of the page, or the LSN of the transaction before.
func (p *page) tokenBefore(n int) string {
	if n == 0 {
		return p.from
	}
	return p.tokenAfter(n)
}

// tokenAfter is the token after the first n changes.
func (p *page) tokenAfter(n int) string {
	if n == len(p.changes) {
		return p.next
	}
	return service.Token(p.changes[n-1].lsn)
}

// notePage records a page as it leaves the store. An empty page moves its process further, too. If the answer is lost,
// the caller calls forget: a later version may replace a change of the page before the process reads that again.
func (g *ledger) notePage(by *instance, of feed.Range, from string, p feed.Page) (forget func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	made := &page{from: from, next: p.Next.Token}
	for _, c := range p.Changes {
		made.changes = append(made.changes, versionOf(c))
	}
	if len(p.Changes) > 0 {
		g.tell("%s reads %s from %s: %v, and then %s", by, of, from, made.changes, made.next)
		const most = 8
		at := reading{by, of}
		pages := append(g.model.pages[at], made)
		g.model.pages[at] = pages[max(0, len(pages)-most):]
	}
	t := g.model.tenures[place{by, g.model.tokenOf(by, of)}]
	if t == nil {
		return func() {}
	}
	const most = 8
	t.spans = append(t.spans[max(0, len(t.spans)-most+1):], [2]int64{lsnOf(from), lsnOf(made.next)})
	t.tokens[from], t.tokens[made.next], t.read = true, true, max(t.read, lsnOf(made.next))
	for _, v := range made.changes {
		t.shown[v]++
		t.tokens[service.Token(v.lsn)] = true
	}
	if len(p.Changes) == 0 {
		found := emptyRead{made.next, lsnOf(from), lsnOf(made.next)}
		if !slices.Contains(t.idle, found) { // an idle range is read again and again
			g.tell("%s finds %s empty from %s to %s", by, of, from, made.next)
			t.idle = append(t.idle, found)
		}
		t.allowEmpty()
	}
	return func() { g.forgetPage(t, made) }
}

// forgetPage records that a tenure has not received a page.
func (g *ledger) forgetPage(t *tenure, p *page) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range p.changes {
		if t.shown[v]--; t.shown[v] == 0 {
			delete(t.shown, v)
		}
	}
}

// noteKeyPage records a page of one key. It moves no position.
func (g *ledger) noteKeyPage(by *instance, of feed.Range, p feed.Page) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.model.tenures[place{by, g.model.tokenOf(by, of)}]
	if t == nil {
		return
	}
	for _, c := range p.Changes {
		t.shown[versionOf(c)]++
	}
}
