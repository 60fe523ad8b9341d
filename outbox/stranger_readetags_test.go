package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/outbox"
)

// script is a store whose n-th request (from 1) is refused or whose answer is lost.
type script struct {
	changefeed.Committer
	n    int
	drop map[int]bool // request does not arrive
	lose map[int]bool // answer does not arrive
}

func (s *script) Commit(ctx context.Context, key changefeed.PartitionKey, writes []changefeed.Write) ([]changefeed.Result, error) {
	s.n++
	n := s.n
	if s.drop[n] {
		return nil, errLost
	}
	r, err := s.Committer.Commit(ctx, key, writes)
	if s.lose[n] {
		return nil, errLost
	}
	return r, err
}

func TestStrangerEveryOrderOfLoss(t *testing.T) {
	for mask := range 1 << 6 {
		for _, etag := range []bool{true, false} {
			for _, drop := range []bool{true, false} {
				contacts, _ := open(t)
				d := add(t, contacts, "c1", "A")
				if !etag {
					d.ETag = ""
				}
				lost := map[int]bool{}
				for i := range 6 {
					if mask>>i&1 == 1 {
						lost[i+1] = true
					}
				}
				s := &script{Committer: contacts, lose: lost}
				if drop {
					s.drop = map[int]bool{}
					for i := range lost {
						if i > 1 {
							s.drop[i] = true
						}
					}
					s.lose = map[int]bool{1: lost[1]}
				}
				d.Data.rename("B")
				u := outbox.NewUnit(s, outbox.Options{})
				u.Replace(d)
				var errs []error
				for range 12 {
					err := u.Commit(t.Context())
					if err == nil {
						break
					}
					errs = append(errs, err)
					if !errors.Is(err, errLost) {
						break
					}
				}
				got := actions(stored(t, contacts, "c1"))
				if len(got) != 2 || len(errs) > 0 && !errors.Is(errs[len(errs)-1], errLost) {
					t.Errorf("lost %v drop %v etag %v: events %q, errors %v", lost, drop, etag, got, errs)
				}
			}
		}
	}
}
