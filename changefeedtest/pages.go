package changefeedtest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A processor keeps only a page and the position after the page. If a page omits a change, or has a wrong position, no
// later read repairs the mistake.

// pageCases test the content of pages.
var pageCases = []containerCase{
	{name: "a new container has one partition that covers the key space", test: newContainer},
	{name: "an empty container gives an empty page and a position that later changes come after", test: emptyContainer},
	{name: "changes come in the order of their commits, as stored", test: changesAsStored},
	{name: "what a body says of itself is what the change says", test: bodiesAgree},
	{name: "an item appears once, in its last version", test: lastVersions},
	{name: "deleted items do not appear in latest version", test: deletedItems},
	{name: "pages hold at most so many changes and join without loss", test: pagesJoin},
	{name: "a page can be read again", test: pagesRepeat},
	{name: "a transaction is never cut", test: transactionsWhole},
	{name: "the head is the newest change", test: head},
	{name: "a read with an ended context is an error", test: endedContext},
	{name: "a throttled read tells how long to wait", needs: []Ability{Throttling}, test: throttled},
}

// newContainer checks the promises of the harness, because the other tests rely on them.
func newContainer(s *containerTest) {
	if r := s.wholeRange(); r != feed.FullRange() {
		s.Errorf("range of the only partition is %v, want %v", r, feed.FullRange())
	}
}

// emptyContainer reads before the first write. A processor stores a position before its first batch, so an empty page
// needs a token, and later changes must appear after that token.
func emptyContainer(s *containerTest) {
	for _, start := range []feed.Position{beginning, {}} {
		changes, next := s.readAll(s.wholeRange(), start, feed.ReadOptions{})
		s.wantIDs("empty container from "+start.String(), changes)
		id := "after " + start.String()
		s.put("k", id)
		changes, _ = s.readAll(s.wholeRange(), next, feed.ReadOptions{})
		s.wantIDs("after an empty page", changes, id)
	}
}

// changesAsStored compares changes with the results of their writes. A handler that keeps the LSN or the ETag of a
// change must be able to use them in a conditional write.
func changesAsStored(s *containerTest) {
	var want []string
	var results []feed.Result
	for i := range 30 {
		id, pk := fmt.Sprintf("i%02d", i), fmt.Sprint("k", i%5)
		want = append(want, id)
		results = append(results, s.commit(feed.Key(pk), feed.Write{Body: doc(id, pk, i)})...)
	}
	changes, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("30 commits", changes, want...)
	if s.Failed() {
		return
	}
	for i, c := range changes {
		pk := feed.Key(fmt.Sprint("k", i%5))
		if c.LSN != results[i].LSN || c.ETag != results[i].ETag || c.PartitionKey != pk || c.Op != feed.OpUpsert {
			s.Errorf("change %+v, want LSN %d, ETag %s, key %s, upsert", c, results[i].LSN, results[i].ETag, pk)
		}
		if i > 0 && c.LSN <= changes[i-1].LSN {
			s.Errorf("LSN %d of commit %d is not above %d", c.LSN, i, changes[i-1].LSN)
		}
		s.wantBody(c, i)
	}
}

// wantBody checks an item of doc and, if the store has them, its system properties.
func (s *containerTest) wantBody(c feed.Change, n int) {
	s.Helper()
	var body struct {
		ID, ETag string
		N        int
		System   string `json:"_etag"`
		Ts       int64  `json:"_ts"`
	}
	if err := json.Unmarshal(c.Body, &body); err != nil {
		s.Fatalf("body of %s: %v", c.ID, err)
	}
	if body.ID != c.ID || body.N != n || c.Previous != nil {
		s.Errorf("change %+v has body %s, want id %q and n %d", c, c.Body, c.ID, n)
	}
	if !s.h.lacksAbility(SystemProperties) && (body.System != c.ETag || body.Ts != c.Time.Unix()) {
		s.Errorf("change %+v has body %s, want _etag %s and _ts %d, or list %q in Lacks", c, c.Body, c.ETag,
			c.Time.Unix(), SystemProperties)
	}
}

// lastVersions overwrites items between reads. The feed of latest versions must have each item at the place of its last
// write: otherwise an earlier version would be handled after a later version.
func lastVersions(s *containerTest) {
	s.put("k", "a")
	s.put("k", "b")
	middle := s.tokenAtEnd(s.wholeRange(), feed.LatestVersion)
	s.put("k", "c")
	last := s.put("k", "a")
	changes, next := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("from the beginning", changes, "b", "c", "a")
	if len(changes) == 3 && changes[2].LSN != last {
		s.Errorf("LSN of the last version is %d, want %d", changes[2].LSN, last)
	}
	changes, _ = s.readAll(s.wholeRange(), middle, feed.ReadOptions{})
	s.wantIDs("from the middle", changes, "c", "a")
	s.put("k", "b")
	changes, _ = s.readAll(s.wholeRange(), next, feed.ReadOptions{})
	s.wantIDs("after everything was read", changes, "b")
}

// deletedItems deletes items and creates them again. A deleted item has no latest version; a recreated item has a new
// place, not its former place.
func deletedItems(s *containerTest) {
	from := s.tokenAtEnd(s.wholeRange(), feed.LatestVersion)
	s.put("k", "stays")
	s.put("k", "goes")
	s.remove("k", "goes")
	s.put("k", "returns")
	s.remove("k", "returns")
	s.put("k", "returns")
	for _, start := range []feed.Position{beginning, from} {
		changes, next := s.readAll(s.wholeRange(), start, feed.ReadOptions{})
		s.wantIDs("with two deletes", changes, "stays", "returns")
		s.remove("k", "stays")
		changes, _ = s.readAll(s.wholeRange(), next, feed.ReadOptions{})
		s.wantIDs("after a delete alone", changes)
		s.put("k", "stays")
		s.put("k", "returns")
	}
}

// pagesJoin reads with page sizes around the number of items, because pages ending exactly at the last item are most
// often wrong.
func pagesJoin(s *containerTest) {
	want := s.putSpread("i", 35)
	for _, most := range []int{1, 7, 10, 34, 35, 36, 0} {
		o := feed.ReadOptions{MaxItems: most}
		var all []feed.Change
		for from := beginning; ; {
			page := s.read(s.wholeRange(), from, o)
			if len(page.Changes) == 0 {
				break
			}
			if most > 0 && len(page.Changes) > most {
				s.Errorf("page of %d changes, want at most %d", len(page.Changes), most)
			}
			all, from = append(all, page.Changes...), page.Next
		}
		s.wantIDs(fmt.Sprint("pages of ", most), all, want...)
	}
}

// pagesRepeat reads a page twice. After a crash the same position is read again, and the batch must be the same, unless
// items were overwritten.
func pagesRepeat(s *containerTest) {
	s.putSpread("i", 9)
	first := s.read(s.wholeRange(), beginning, feed.ReadOptions{MaxItems: 4})
	for range 2 {
		again := s.read(s.wholeRange(), beginning, feed.ReadOptions{MaxItems: 4})
		s.wantIDs("the first page again", again.Changes, ids(first.Changes)...)
		next := s.read(s.wholeRange(), first.Next, feed.ReadOptions{MaxItems: 4})
		s.wantIDs("the second page again", next.Changes, "i004", "i005", "i006", "i007")
	}
}

// transactionsWhole reads transactions with pages shorter than they are. A position cannot say how much of a
// transaction was handled, so a cut would lose or repeat the rest.
func transactionsWhole(s *containerTest) {
	s.put("a", "1", "2")
	s.put("b", "3")
	s.put("a", "4", "5", "6", "7", "8", "9", "10")
	s.put("b", "11")
	s.put("b", "12", "13", "14")
	for most := 1; most <= 15; most++ {
		var all []feed.Change
		for from := beginning; ; {
			page := s.read(s.wholeRange(), from, feed.ReadOptions{MaxItems: most})
			if len(page.Changes) == 0 {
				break
			}
			s.wantWhole(most, all, page.Changes)
			all, from = append(all, page.Changes...), page.Next
		}
		s.wantIDs(fmt.Sprint("pages of ", most), all, "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12",
			"13", "14")
	}
}

// wantWhole checks that a page begins with a new transaction, and exceeds the limit only by the end of its last
// transaction.
func (s *containerTest) wantWhole(most int, before, page []feed.Change) {
	s.Helper()
	if len(before) > 0 && before[len(before)-1].LSN == page[0].LSN {
		s.Errorf("pages of %d: transaction %d is cut", most, page[0].LSN)
	}
	last, others := page[len(page)-1].LSN, 0
	for _, c := range page {
		if c.LSN != last {
			others++
		}
	}
	if len(page) > most && others >= most {
		s.Errorf("page of %d changes, want at most %d and the end of a transaction", len(page), most)
	}
}

// head compares the head with the last write: users see the distance to the head as the lag.
func head(s *containerTest) {
	s.put("a", "1")
	last := s.put("b", "2")
	page := s.read(s.wholeRange(), beginning, feed.ReadOptions{MaxItems: 1})
	if page.Head != 0 && page.Head != last {
		s.Errorf("Head is %d, want %d (or 0, unknown)", page.Head, last)
	}
}

// endedContext expects an error and not an empty page, which a processor would take for the end of the feed.
func endedContext(s *containerTest) {
	ctx, cancel := s.contextThatEndsSoon()
	cancel()
	if _, err := s.Source.Read(ctx, s.wholeRange(), beginning, feed.ReadOptions{}); err == nil {
		s.Error("Read with an ended context: no error")
	}
}

// throttled expects the pause in the error, because a processor without the pause asks too often or waits too long.
func throttled(s *containerTest) {
	s.put("k", "a")
	r := s.wholeRange()
	s.Throttle(s.T)
	_, err := s.Source.Read(s.Context(), r, beginning, feed.ReadOptions{})
	after := throttledFor(err)
	if after <= 0 {
		s.Fatalf("Read = %v, want a ThrottledError with a pause", err)
	}
	for range maxPages {
		s.passTime(max(after, time.Millisecond))
		page, err := s.Source.Read(s.Context(), r, beginning, feed.ReadOptions{})
		if after = throttledFor(err); after == 0 {
			s.wantIDs("after the pause", page.Changes, "a")
			return
		}
	}
	s.Error("throttled for ever")
}

// bodiesAgree compares bodies with the fields of their changes, because handlers use both. Bodies without system
// properties are allowed; the feed's own _lsn must not appear, because the stored item does not contain it.
func bodiesAgree(s *containerTest) {
	s.put("k", "a", "b")
	s.put("k", "a")
	s.put("l", "c")
	changes, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	for _, c := range changes {
		said := struct {
			ID   string  `json:"id"`
			ETag *string `json:"_etag"`
			TS   *int64  `json:"_ts"`
			LSN  *int64  `json:"_lsn"`
		}{}
		if err := json.Unmarshal(c.Body, &said); err != nil {
			s.Fatalf("body %s: %v", c.Body, err)
		}
		if said.ID != c.ID || said.ETag != nil && *said.ETag != c.ETag || said.TS != nil && *said.TS != c.Time.Unix() ||
			said.LSN != nil {
			s.Errorf("body %s of change %s with ETag %s at %d: want the same id, _etag and _ts, and no _lsn", c.Body,
				c.ID, c.ETag, c.Time.Unix())
		}
	}
}
