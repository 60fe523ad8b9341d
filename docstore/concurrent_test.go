package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// follower is a processor in small: it follows all ranges and takes over the position of
// a range that is gone to those that replace it.
type follower struct {
	t    *testing.T
	c    *docstore.Container
	mode feed.Mode
	stop chan struct{} // closed when the head will not move any more

	mu       sync.Mutex
	versions map[string]int // last version seen, by id
	seen     int
}

func (f *follower) run(r feed.Range, from feed.Position) {
	ctx, last := f.t.Context(), int64(0)
	for {
		page, err := f.c.Read(ctx, r, from, feed.ReadOptions{Mode: f.mode, MaxItems: 1 + rand.IntN(50)})
		if errors.Is(err, feed.ErrGone) {
			f.inherit(r, from)
			return
		}
		if err != nil {
			f.t.Error(err)
			return
		}
		f.take(page.Changes, &last)
		from = page.Next
		if len(page.Changes) > 0 {
			continue
		}
		select {
		case <-f.stop:
			if page.Next.Token == fmt.Sprintf(`"%d"`, f.c.Head()) {
				return
			}
			continue
		default:
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if err := f.c.Wait(short, r, from); err != nil && short.Err() == nil {
			f.t.Error(err)
		}
		cancel()
	}
}

func (f *follower) inherit(r feed.Range, from feed.Position) {
	parts, err := f.c.Partitions(f.t.Context())
	if err != nil {
		f.t.Error(err)
		return
	}
	var wg sync.WaitGroup
	for _, p := range parts {
		if child := p.Range.Intersect(r); !child.Empty() {
			wg.Go(func() { f.run(child, from) })
		}
	}
	wg.Wait()
}

func (f *follower) take(changes []feed.Change, last *int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ch := range changes {
		if ch.LSN < *last {
			f.t.Errorf("LSN %d after %d", ch.LSN, *last)
		}
		*last = ch.LSN
		v := 0
		if ch.Op != feed.OpDelete {
			v = valueOf(f.t, ch.Body)
		}
		old := f.versions[ch.ID]
		if f.mode == feed.AllVersionsAndDeletes && v != 0 && old != 0 && v != old+1 {
			f.t.Errorf("%s: version %d after %d", ch.ID, v, old)
		}
		if v != 0 && v <= old {
			f.t.Errorf("%s: version %d after %d", ch.ID, v, old)
		}
		f.versions[ch.ID] = v
		f.seen++
	}
}

// TestFollowersMissNothing writes, splits and merges beside followers of both feeds.
func TestFollowersMissNothing(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		t.Run(fmt.Sprint("NoSync=", noSync), func(t *testing.T) {
			followAll(t, open(t, docstore.Options{NoSync: noSync}))
		})
	}
}

func followAll(t *testing.T, db *docstore.DB) {
	c := container(t, db, docstore.ContainerSpec{Retention: time.Hour, Ranges: 2})
	stop := make(chan struct{})
	var followers []*follower
	var following sync.WaitGroup
	for _, mode := range []feed.Mode{feed.LatestVersion, feed.AllVersionsAndDeletes} {
		f := &follower{t: t, c: c, mode: mode, stop: stop, versions: map[string]int{}}
		followers = append(followers, f)
		following.Go(func() { f.run(feed.FullRange(), feed.At("0")) })
	}
	want := map[string]int{}
	var mu sync.Mutex
	var writing sync.WaitGroup
	var done atomic.Bool
	const writers = 6
	each := detector.Rounds(400, 150)
	for w := range writers {
		writing.Go(func() {
			versions := map[string]int{}
			for n := range each {
				id := fmt.Sprintf("w%d-%d", w, rand.IntN(30))
				versions[id]++
				body := fmt.Appendf(nil, `{"id":%q,"pk":%q,"v":%d}`, id, id, versions[id])
				if _, err := c.Upsert(t.Context(), body); err != nil {
					t.Error(err)
					return
				}
				if n%100 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(want, versions)
		})
	}
	reshaping := sync.WaitGroup{}
	reshaping.Go(func() {
		for n := 0; n < 25 && !done.Load(); n++ {
			reshape(c)
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		}
	})
	writing.Wait()
	done.Store(true)
	reshaping.Wait()
	close(stop)
	following.Wait()
	for _, f := range followers {
		if !maps.Equal(f.versions, want) {
			t.Errorf("%s: %v, want %v", f.mode, f.versions, want)
		}
	}
	if n := followers[1].seen; n != writers*each {
		t.Errorf("follower of all versions saw %d changes, want %d", n, writers*each)
	}
}
