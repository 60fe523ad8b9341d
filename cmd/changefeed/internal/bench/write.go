package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Durable writes, and the documents that all benchmarks write.

const (
	docBytes      = 1024
	docsPerCity   = 100 // the limit of a batch
	overwriteDocs = 100_000
	writers       = 16
	writeSlice    = 1500 * time.Millisecond
	writeRounds   = 5
)

// prose is the text of the documents. The text consists of words, so prose compresses about as well as the documents
// that people store. Random bytes would cost the engine more, and zeros nothing.
var prose = sync.OnceValue(func() string {
	const syllables = "ba be bi bo bu da de di do du ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu ra " +
		"re ri ro ru sa se si so su ta te ti to tu"
	rng := rand.New(rand.NewPCG(1, 2))
	parts := strings.Fields(syllables)
	var words []string
	for range 4096 {
		var word strings.Builder
		for range 2 + rng.IntN(3) {
			word.WriteString(parts[rng.IntN(len(parts))])
		}
		words = append(words, word.String())
	}
	var b strings.Builder
	for b.Len() < 1<<20 {
		b.WriteString(words[rng.IntN(len(words))] + " ")
	}
	return b.String()
})

// docOf returns document n, of 1 KB. Its text differs from call to call, so an overwrite changes the document.
func docOf(n int) (key feed.PartitionKey, body []byte) {
	city := fmt.Sprintf("city-%d", n/docsPerCity)
	body = make([]byte, 0, docBytes)
	body = fmt.Appendf(body, `{"id":%q,"city":%q,"text":"`, docID(n), city)
	text := prose()
	at := rand.IntN(len(text) - docBytes)
	body = append(body, text[at:at+docBytes-len(body)-2]...)
	return feed.Key(city), append(body, `"}`...)
}

// docID is the id of document n.
func docID(n int) string { return "doc-" + strconv.Itoa(n) }

// fillWith writes n documents, a city per batch, because a batch is atomic in a single partition key, and a city is
// the largest such batch.
func fillWith(ctx context.Context, c *docstore.Container, n int) error {
	var next atomic.Int64
	return together(ctx, writers, func(ctx context.Context) error {
		for city := int(next.Add(1)) - 1; city < n/docsPerCity; city = int(next.Add(1)) - 1 {
			if err := fillCity(ctx, c, city); err != nil {
				return err
			}
		}
		return nil
	})
}

// together runs n goroutines until all have returned or any has failed.
func together(parent context.Context, n int, work func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var working sync.WaitGroup
	for range n {
		working.Go(func() {
			if err := work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	working.Wait()
	return context.Cause(ctx)
}

// fillCity writes the documents of a city.
func fillCity(ctx context.Context, c *docstore.Container, city int) error {
	writes := make([]feed.Write, docsPerCity)
	var key feed.PartitionKey
	for i := range writes {
		key, writes[i].Body = docOf(city*docsPerCity + i)
	}
	_, err := c.Commit(ctx, key, writes)
	return err
}

// durableOverwrite compares acknowledged overwrites with their lowest possible cost: the same bytes in a plain file.
func durableOverwrite(ctx context.Context, s *Site) (f Figure, err error) {
	db, err := docstore.Open(filepath.Join(s.dir, "overwrite"), docstore.Options{})
	if err != nil {
		return f, err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	c, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "documents", Paths: []string{"/city"}})
	if err != nil {
		return f, err
	}
	s.reportProgress("filling a store with %d documents", overwriteDocs)
	if err := fillWith(ctx, c, overwriteDocs); err != nil {
		return f, err
	}
	plain, err := newPlainFile(filepath.Join(s.dir, "plain"))
	if err != nil {
		return f, err
	}
	defer func() { err = cmp.Or(err, plain.Close()) }()
	f.Unit = "writes/s"
	value, baseline, err := s.inTurns(ctx, writeRounds, f.Unit, func() (float64, error) {
		return crowd(ctx, writers, writeSlice, func(ctx context.Context, _ int) error {
			key, body := docOf(rand.IntN(overwriteDocs))
			_, err := c.Commit(ctx, key, []feed.Write{{Op: feed.WriteReplace, Body: body}})
			return err
		})
	}, func() (float64, error) {
		return crowd(ctx, writers, writeSlice, func(context.Context, int) error {
			// The baseline makes its documents too, so both sides spend this time.
			_, body := docOf(rand.IntN(overwriteDocs))
			return plain.append(body)
		})
	})
	if err != nil {
		return f, err
	}
	f.Value = value
	f.Against(baseline)
	f.ratioOf(0.55)
	f.Detail = fmt.Sprintf("%d writers, %d documents of %d bytes in the store, each write acknowledged after fsync; "+
		"baseline: the same bytes in a plain file, one fsync for all that wait",
		writers, overwriteDocs, docBytes)
	return f, nil
}

// plainFile is a file to which many writers append, waiting for the same fsync: group commit without a store.
type plainFile struct {
	f       *os.File
	queue   chan plainWrite
	writing sync.WaitGroup
}

// plainWrite is a body to append, and the channel on which its writer waits.
type plainWrite struct {
	body []byte
	done chan error
}

// newPlainFile creates the file, and starts writing.
func newPlainFile(path string) (*plainFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make plain file: %w", err)
	}
	// The queue has room for a write of each writer, so all wait for the disk and not for the queue.
	p := &plainFile{f: f, queue: make(chan plainWrite, writers)}
	p.writing.Go(p.writeAll)
	return p, nil
}

// append appends a body, and returns when the body is on the disk.
func (p *plainFile) append(body []byte) error {
	w := plainWrite{body, make(chan error, 1)}
	p.queue <- w
	return <-w.done
}

// writeAll writes all waiting bodies, flushes them together, and answers their writers. writeAll does not wait for
// more bodies, which is the minimum of group commit.
func (p *plainFile) writeAll() {
	var buffer []byte
	var group []plainWrite
	for w := range p.queue {
		buffer, group = append(buffer[:0], w.body...), append(group[:0], w)
		for waiting := len(p.queue); waiting > 0; waiting-- {
			w := <-p.queue
			buffer, group = append(buffer, w.body...), append(group, w)
		}
		_, err := p.f.Write(buffer)
		if err == nil {
			err = p.f.Sync()
		}
		for _, w := range group {
			w.done <- err
		}
	}
}

// Close ends the writing.
func (p *plainFile) Close() error {
	close(p.queue)
	p.writing.Wait()
	return p.f.Close()
}
