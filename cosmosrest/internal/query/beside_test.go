package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Queries beside writers. Documents that exist throughout have a number that grows with each
// write. A query must show each of them once, with a number between the last one acknowledged
// before its page and the last one begun before the end of the page, and of those that an atomic
// batch writes together one number.

const (
	singles = 20 // documents, each under a key of its own, that are written one by one
	groups  = 3  // keys whose documents are written together
	members = 5  // documents of such a key
	renewed = 4  // documents with a time to live that are written again before it is over
	lasting = singles + groups*members + renewed
)

// besideWorld is a container that is written to, split and merged.
type besideWorld struct {
	t     *testing.T
	cont  *docstore.Container
	stop  chan struct{}
	turns []chan struct{} // one for each writer
	pages int             // of the listing
	wg    sync.WaitGroup

	mu           sync.Mutex
	begun, acked map[string]int // the newest number of each document
}

func newBesideWorld(t *testing.T, retention time.Duration) *besideWorld {
	t.Helper()
	db, err := docstore.Open(t.TempDir(), docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &besideWorld{t: t, stop: make(chan struct{}), begun: map[string]int{}, acked: map[string]int{}}
	t.Cleanup(func() {
		close(w.stop)
		w.wg.Wait()
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	w.cont, err = db.CreateContainer(t.Context(), docstore.ContainerSpec{
		ID: "c", Paths: []string{"/pk"}, Ranges: 2, Retention: retention, DefaultTTL: new(docstore.NoDefaultTTL),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.write()
	return w
}

// write begins the writers, each with documents of its own, and returns when all of these exist.
func (w *besideWorld) write() {
	var rounds []func(n int)
	for i := range groups {
		rounds = append(rounds, func(n int) { w.batch(fmt.Sprint("b", i), n) })
	}
	for i := range 2 {
		rounds = append(rounds, func(n int) {
			for k := i; k < singles; k += 2 {
				if n == 1 || k == i+n*2%singles {
					w.upsert("s", fmt.Sprint("s", k), fmt.Sprint("s", k), n, 0)
				}
			}
		})
	}
	renew := func(n int) {
		for k := range renewed {
			w.upsert("t", fmt.Sprint("t", k), "t", n, 20)
		}
	}
	rounds = append(rounds, func(n int) {
		w.upsert("x", fmt.Sprint("x", n%50), fmt.Sprint("x", n%7), n, n%2) // expires or is deleted
		_ = w.cont.Delete(context.Background(), feed.Key(fmt.Sprint("x", (n+1)%7)), fmt.Sprint("x", (n+1)%50), "")
	})
	for _, round := range append(rounds, renew) {
		round(1)
	}
	w.wg.Go(func() { // by the clock, however slow the readers are, and seldom enough for a slow listing to end
		for n := 2; ; n++ {
			select {
			case <-w.stop:
				return
			case <-time.After(time.Second / 2):
				renew(n)
			}
		}
	})
	for _, round := range rounds {
		w.until(func(n int) { round(n + 1) })
	}
	w.until(func(n int) {
		if n%4 == 0 { // a page reads the log of each partition that is not forgotten, so many take long
			w.reshape()
		}
	})
}

// until calls f until the test ends, with numbers from 1 on, at most once for each page that is read: writers that are
// faster than the readers, on a busy machine, keep a listing from ending.
func (w *besideWorld) until(f func(n int)) {
	turn := make(chan struct{}, 1)
	w.turns = append(w.turns, turn)
	w.wg.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-w.stop:
				return
			case <-turn:
			}
			f(n)
		}
	})
}

// besides is how many pages of a listing are read beside writers. In the order of writing, a page of one document may
// be followed by more new ones than it has shown, so that a listing would never end.
const besides = 100

// goOn gives each writer that waits a turn.
func (w *besideWorld) goOn() {
	for _, turn := range w.turns {
		select {
		case turn <- struct{}{}:
		default:
		}
	}
}

func (w *besideWorld) note(in map[string]int, n int, ids ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		in[id] = n
	}
}

func (w *besideWorld) upsert(kind, id, pk string, n, ttl int) {
	body := fmt.Sprintf(`{"id":%q,"pk":%q,"kind":%q,"v":%d`, id, pk, kind, n)
	if ttl > 0 {
		body += fmt.Sprintf(`,"ttl":%d`, ttl)
	}
	w.note(w.begun, n, id)
	if _, err := w.cont.Upsert(context.Background(), []byte(body+"}")); err != nil {
		w.t.Error(err)
	}
	w.note(w.acked, n, id)
}

func (w *besideWorld) batch(pk string, n int) {
	var ids []string
	var writes []feed.Write
	for i := range members {
		id := fmt.Sprint(pk, "-", i)
		ids = append(ids, id)
		writes = append(writes, feed.Write{
			Op: feed.WriteUpsert, Body: fmt.Appendf(nil, `{"id":%q,"pk":%q,"kind":"b","v":%d}`, id, pk, n),
		})
	}
	w.note(w.begun, n, ids...)
	if _, err := w.cont.Commit(context.Background(), feed.Key(pk), writes); err != nil {
		w.t.Error(err)
	}
	w.note(w.acked, n, ids...)
}

// reshape splits or merges a partition.
func (w *besideWorld) reshape() {
	parts, err := w.cont.Partitions(context.Background())
	if err != nil {
		w.t.Error(err)
		return
	}
	i := rand.IntN(len(parts))
	if len(parts) > 3 {
		i = min(i, len(parts)-2)
		_, err = w.cont.Merge(context.Background(), parts[i].ID, parts[i+1].ID)
	} else {
		_, err = w.cont.Split(context.Background(), parts[i].ID)
	}
	if err != nil {
		w.t.Error(err)
	}
}

// numbers are those in a map of the world now.
func (w *besideWorld) numbers(of map[string]int) map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(of)
}

// row is what the queries of the test show of a document.
type row struct {
	ID, PK string
	V      int
}

// page fetches a page of a query, or of the documents themselves where text is empty, and the
// token of the next.
func (w *besideWorld) page(results *Results, sel Selection, text, token string, most int) (rows []json.RawMessage,
	next string,
) {
	w.t.Helper()
	if w.pages++; w.pages <= besides {
		w.goOn()
	}
	m := meter.NewLoad().Request(w.t.Context())
	defer m.End()
	k, err := ParseContinuation(token, w.cont.RID())
	if err != nil {
		w.t.Fatal(err)
	}
	docs := wire.NewDocuments(w.cont.RID())
	defer docs.Free()
	var more bool
	if text == "" {
		more, err = NewScan(&m, w.cont, sel).Documents(docs, most, &k)
	} else {
		var q *Query
		if q, err = New(w.cont, sel, Text{Query: text}, &m, results); err == nil {
			q.From, q.Max = k, most
			more, err = q.Page(docs)
			k = q.From
		}
	}
	if err != nil {
		w.t.Fatalf("%q: %v", text, err)
	}
	var body struct{ Documents []json.RawMessage }
	if err := json.Unmarshal(docs.Finish(), &body); err != nil {
		w.t.Fatal(err)
	}
	if more {
		if next, err = k.Encode(); err != nil {
			w.t.Fatal(err)
		}
	}
	return body.Documents, next
}

// ranges are those in which an SDK asks for a query: one for the gateway, or each partition, as
// the partitions were a moment ago.
func (w *besideWorld) ranges() []Selection {
	if rand.IntN(2) == 0 {
		return []Selection{{Range: feed.FullRange()}}
	}
	parts, err := w.cont.Partitions(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var list []Selection
	for _, p := range parts {
		list = append(list, Selection{Range: p.Range, Named: true})
	}
	return list
}

// divide is what an SDK does with a range whose partition was split: it goes on in the parts,
// each from the token of the whole.
func (w *besideWorld) divide(sel Selection) (parts []Selection) {
	list, err := w.cont.Partitions(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range list {
		if r := p.Range.Intersect(sel.Range); !r.Empty() {
			parts = append(parts, Selection{Range: r, Named: true})
		}
	}
	return parts
}

// listing is a query for documents, paged; checks are of each page, and of all.
type listing struct {
	*besideWorld
	text  string
	most  int
	seen  map[string]int // newest number that was shown, by id
	times map[string]int // how often a document was shown
	whole map[string]int // the number of each group, where all pages are of one moment
}

func (w *besideWorld) list(text string, most int) {
	w.t.Helper()
	w.pages = 0
	l := &listing{besideWorld: w, text: text, most: most, seen: map[string]int{}, times: map[string]int{}}
	sorted := strings.Contains(text, "ORDER BY")
	for _, sel := range w.ranges() {
		if sorted {
			l.whole = map[string]int{}
		}
		l.read(sel, "", &Results{}, w.numbers(w.acked))
	}
	if len(l.seen) != lasting {
		w.t.Errorf("%q, %d a page, shows %d of %d documents", text, most, len(l.seen), lasting)
	}
	for id, n := range l.times {
		if n > 1 && sorted {
			w.t.Errorf("%q, %d a page, shows %s %d times", text, most, id, n)
		}
	}
}

// read reads a range to its end.
func (l *listing) read(sel Selection, token string, results *Results, acked map[string]int) {
	l.t.Helper()
	for {
		if l.whole == nil {
			acked = l.numbers(l.acked)
		}
		rows, next := l.page(results, sel, l.text, token, l.most)
		l.check(rows, acked)
		if token = next; token == "" {
			return
		}
		if sel.Named && l.whole == nil && rand.IntN(4) == 0 {
			for _, part := range l.divide(sel) {
				l.read(part, token, results, acked)
			}
			return
		}
	}
}

// check checks a page.
func (l *listing) check(rows []json.RawMessage, acked map[string]int) {
	l.t.Helper()
	begun := l.numbers(l.begun)
	inPage, together := map[string]bool{}, l.whole
	if together == nil {
		together = map[string]int{}
	}
	for _, raw := range rows {
		var r row
		if err := json.Unmarshal(raw, &r); err != nil {
			l.t.Fatal(err)
		}
		if strings.HasPrefix(r.ID, "x") {
			continue
		}
		if inPage[r.ID] {
			l.t.Errorf("%q, %d a page: a page shows %s twice", l.text, l.most, r.ID)
		}
		inPage[r.ID] = true
		if r.V < acked[r.ID] || r.V > begun[r.ID] {
			l.t.Errorf("%q, %d a page: %s is %d, want %d to %d", l.text, l.most, r.ID, r.V, acked[r.ID], begun[r.ID])
		}
		if old, again := l.seen[r.ID]; again && r.V <= old {
			l.t.Errorf("%q, %d a page: %s comes again as %d after %d", l.text, l.most, r.ID, r.V, old)
		}
		l.seen[r.ID] = r.V
		l.times[r.ID]++
		if strings.HasPrefix(r.ID, "b") {
			if n, known := together[r.PK]; known && n != r.V {
				l.t.Errorf("%q, %d a page: half of a batch: %s is %d beside %d", l.text, l.most, r.ID, r.V, n)
			}
			together[r.PK] = r.V
		}
	}
}

// sum adds up the rows of a query that has one number a range.
func (w *besideWorld) sum(text string, sels []Selection) (n int) {
	w.t.Helper()
	for _, sel := range sels {
		rows, _ := w.page(&Results{}, sel, text, "", 0)
		for _, raw := range rows {
			var v int
			if err := json.Unmarshal(raw, &v); err != nil {
				w.t.Fatal(err)
			}
			n += v
		}
	}
	return n
}

// inKey checks queries of one key whose documents are written together.
func (w *besideWorld) inKey(text string) {
	w.t.Helper()
	sel := Selection{Range: feed.FullRange(), Key: feed.Key(fmt.Sprint("b", rand.IntN(groups)))}
	rows, next := w.page(&Results{}, sel, text, "", 0)
	var numbers []int
	for _, raw := range rows {
		var r row
		if err := json.Unmarshal(raw, &r); err != nil {
			w.t.Fatal(err)
		}
		numbers = append(numbers, r.V)
	}
	if next != "" || len(numbers) != members || len(slices.Compact(slices.Sorted(slices.Values(numbers)))) != 1 {
		w.t.Errorf("%q of %s: %v and next %q, want %d times one number", text, sel.Key, numbers, next, members)
	}
}

func TestAPageIsOfOneMomentBesideWriters(t *testing.T) {
	// What is forgotten, or has expired, goes once a second.
	for retention, long := range map[time.Duration]time.Duration{
		0:                     time.Second / 2,
		20 * time.Millisecond: 2 * time.Second, time.Hour: time.Second / 2,
	} {
		t.Run(retention.String(), func(t *testing.T) {
			w := newBesideWorld(t, retention)
			for end := time.Now().Add(long); time.Now().Before(end) && !t.Failed(); {
				w.queries()
			}
		})
	}
}

// queries asks each kind of query once.
func (w *besideWorld) queries() {
	const documents = "SELECT c.id, c.pk, c.v FROM c WHERE c.kind != 'x'"
	for _, most := range []int{0, 1 + rand.IntN(lasting+3)} {
		w.list("", most)
		w.list("SELECT * FROM c", most)
		w.list(documents, most)
		w.list(documents+" ORDER BY c.id", most)
		w.list(documents+" ORDER BY c.v DESC", most)
		w.list("SELECT DISTINCT c.id, c.pk, c.v FROM c WHERE c.kind != 'x' ORDER BY c.id", most)
	}
	for _, text := range []string{
		"", "SELECT * FROM c", "SELECT * FROM c ORDER BY c.v",
		"SELECT * FROM c WHERE c.id IN ('b0-0','b0-1','b0-2','b0-3','b0-4') OR c.pk != 'b0'",
	} {
		w.inKey(text)
	}
	for text, want := range map[string]int{
		"SELECT VALUE COUNT(1) FROM c WHERE c.kind != 'x'":               lasting,
		"SELECT VALUE COUNT(1) FROM c WHERE c.kind = 's'":                singles,
		"SELECT VALUE SUM(LENGTH(c.kind)) FROM c WHERE c.kind != 'x'":    lasting,
		"SELECT VALUE COUNT(1) FROM c WHERE c.kind = 't' AND c.pk = 't'": renewed,
	} {
		if got := w.sum(text, w.ranges()); got != want {
			w.t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
	if got := w.sum("SELECT VALUE SUM(c.v) FROM c WHERE c.kind = 'b'", w.ranges()); got%members != 0 {
		w.t.Errorf("the sum over batches of %d equal numbers is %d", members, got)
	}
}
