package cosmosrest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// fourPartitions is a server with container c of four partitions, in which there are so many documents.
func fourPartitions(t *testing.T, documents int) (*world, *docstore.Container, []feed.Partition) {
	t.Helper()
	w := newWorld(t, Options{})
	c := w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "40000"})
	parts, err := c.Partitions(t.Context())
	if err != nil || len(parts) != 4 {
		t.Fatalf("%d partitions, %v, want 4", len(parts), err)
	}
	for i := range documents {
		if _, err := c.Create(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"k%d"}`, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	return w, c, parts
}

// estimate is what the estimators of .NET, of Java with range ids and of KEDA find after a position: the LSN of the
// session token, less the LSN of the first change, and one. distance is what they would find with the LSN of the
// partition.
func (w *world) estimate(t *testing.T, c *docstore.Container, r feed.Range, from string) (changes, distance int64) {
	t.Helper()
	part := c.PartitionAt(r.Min)
	h := map[string]string{
		"A-IM": "Incremental feed", "x-ms-max-item-count": "1", "x-ms-documentdb-partitionkeyrangeid": part.ID,
		"x-ms-start-epk": r.Min, "x-ms-end-epk": r.Max, "If-None-Match": from,
	}
	a := w.do(t, "GET", docs, h, "")
	if a.status == http.StatusNotModified {
		return 0, 0
	}
	first := int64(a.list(t, "Documents")[0]["_lsn"].(float64))
	_, global, _ := strings.Cut(a.header.Get("x-ms-session-token"), "#")
	session, err := strconv.ParseInt(global, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return session - first + 1, c.Newest(r.Min) - first + 1
}

// The time stands still, so each count may be followed by another one.
func TestEstimatorsOfOthersCountTheChangesThatAreLeft(t *testing.T) {
	synctest.Test(t, countTheChangesThatAreLeft)
}

func countTheChangesThatAreLeft(t *testing.T) {
	const all = 1807
	w, c, parts := fourPartitions(t, all)
	var changes, distance int64
	for _, p := range parts {
		n, d := w.estimate(t, c, p.Range, "")
		changes, distance = changes+n, distance+d
	}
	if changes != all || distance < 7*all/2 {
		t.Errorf("estimators count %d changes, the LSNs are %d apart: want %d, and nearly four times as many", changes,
			distance, all)
	}
	// From a position on, also after versions were replaced, and in a part of a partition.
	for i := range 100 {
		if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"k%d"}`, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	half := feed.Range{Min: parts[1].Range.Min, Max: "18"} // about a half of the partition
	for _, r := range []feed.Range{parts[0].Range, parts[3].Range, half} {
		for _, lsn := range []int64{0, 1000, all + 50, all + 100} {
			from := service.Token(lsn)
			want, err := c.Pending(t.Context(), r, feed.At(from), feed.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := w.estimate(t, c, r, from); got != want.Items {
				t.Errorf("range %v after LSN %d: %d changes, want %d", r, lsn, got, want.Items)
			}
		}
	}
}

// A reader of single changes must not wait for a count each time; between counts, estimators get an upper bound.
func TestSoonAfterACountTheNumberIsAnUpperBound(t *testing.T) {
	w, c, parts := fourPartitions(t, 100)
	p := parts[0]
	left, _ := w.estimate(t, c, p.Range, service.Token(1))
	w.counts.lastCount(c.RID() + "/" + p.ID).until = time.Now().Add(time.Hour)
	if again, _ := w.estimate(t, c, p.Range, service.Token(1)); again != left {
		t.Errorf("%d changes at the same position, want %d", again, left)
	}
	if got, distance := w.estimate(t, c, p.Range, service.Token(50)); got != distance {
		t.Errorf("%d changes at another position, want the distance %d", got, distance)
	}
	for i := range 40 {
		if _, err := c.Create(t.Context(), fmt.Appendf(nil, `{"id":"new%d","pk":"k%d"}`, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := c.Pending(t.Context(), p.Range, feed.At(service.Token(1)), feed.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := w.estimate(t, c, p.Range, service.Token(1)); got < want.Items || got > left+40 {
		t.Errorf("%d changes after 40 more writes: want %d to %d", got, want.Items, left+40)
	}
}

// Changes of a transaction share an LSN, so estimators count them as one, as in the service.
func TestEstimatorsOfOthersNeverCountMoreThanTheLSNs(t *testing.T) {
	w, c, _ := fourPartitions(t, 0)
	key := feed.Key("k")
	for batch := range 2 {
		writes := make([]feed.Write, 10)
		for i := range writes {
			writes[i] = feed.Write{Op: feed.WriteCreate, Body: fmt.Appendf(nil, `{"id":"%d-%d","pk":"k"}`, batch, i)}
		}
		if _, err := c.Commit(t.Context(), key, writes); err != nil {
			t.Fatal(err)
		}
	}
	epk, err := c.Locate(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if got, distance := w.estimate(t, c, c.PartitionAt(epk).Range, ""); got != 2 || distance != 2 {
		t.Errorf("%d changes, the LSNs are %d apart, want 2", got, distance)
	}
}

func BenchmarkPageOfAChange(b *testing.B) {
	w, c := newContainer(b, Options{})
	for i := range 100_000 {
		if _, err := c.Create(b.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"k%d"}`, i, i)); err != nil {
			b.Fatal(err)
		}
	}
	for _, items := range []string{"1", "2"} { // only a page of a single change has a count
		b.Run(items, func(b *testing.B) {
			h := map[string]string{"A-IM": "Incremental feed", "x-ms-max-item-count": items, "If-None-Match": `"50000"`}
			for b.Loop() {
				w.do(b, "GET", docs, h, "").want(b, http.StatusOK)
			}
		})
	}
}
