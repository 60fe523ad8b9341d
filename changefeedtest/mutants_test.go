package changefeedtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A mutant is a store with one defect, and the case of a suite that has to find it.
type mutant struct {
	name   string
	suite  func(*testing.T, changefeedtest.Harness)
	caught string
	defect func(*changefeedtest.Harness)
}

var mutants = slices.Concat(sourceMutants, leaseMutants, commitMutants, letterMutants)

const mutantVariable = "CHANGEFEEDTEST_MUTANT"

// TestTheSuitesCatchDefects runs this test binary once more for each mutant, since a
// suite that fails would fail the test that runs it.
func TestTheSuitesCatchDefects(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestMutant$/^"+pattern(m.caught)+"$",
				"-test.timeout=2m")
			cmd.Env = append(os.Environ(), mutantVariable+"="+m.name)
			out, err := cmd.CombinedOutput()
			if exit, failed := errors.AsType[*exec.ExitError](err); !failed || exit.ExitCode() != 1 ||
				!strings.Contains(string(out), "--- FAIL: TestMutant/") {
				t.Errorf("case %q did not catch it: %v\n%s", m.caught, err, out)
			}
		})
	}
}

// pattern matches the name that package testing makes of a case.
func pattern(name string) string {
	return strings.NewReplacer(" ", "_", ".", `\.`, "(", `\(`, ")", `\)`).Replace(name)
}

// TestMutant is one such run.
func TestMutant(t *testing.T) {
	for _, m := range mutants {
		if m.name == os.Getenv(mutantVariable) {
			h := embedded()
			m.defect(&h)
			m.suite(t, h)
		}
	}
}

// reading replaces Read of a store.
type reading struct {
	*docstore.Container
	read func(ctx context.Context, c *docstore.Container, r feed.Range, from feed.Position,
		o feed.ReadOptions) (feed.Page, error)
}

func (s reading) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	return s.read(ctx, s.Container, r, from, o)
}

// misplacing has a place for every text.
type misplacing struct{ *docstore.Container }

func (misplacing) Locate(context.Context, feed.PartitionKey) (string, error) { return "1F", nil }

// counting is wrong about tokens and their LSNs.
type counting struct {
	*docstore.Container
	off, ahead int64
	trusting   bool
}

func (c counting) TokenLSN(token string) (lsn int64, ok bool) {
	lsn, ok = c.Container.TokenLSN(token)
	return lsn - c.ahead, ok || c.trusting
}

func (c counting) TokenAfter(lsn int64) string { return c.Container.TokenAfter(lsn - c.off) }

// onSource makes a defect of a change to the source.
func onSource(change func(*docstore.Container) feed.Source) func(*changefeedtest.Harness) {
	return func(h *changefeedtest.Harness) {
		h.Container = func(t *testing.T, c changefeedtest.Container) changefeedtest.Store {
			s := monitored(t, c)
			if inner, ok := s.Source.(*docstore.Container); ok {
				s.Source = change(inner)
			}
			return s
		}
	}
}

// onPages makes a defect of a change to each page that is read.
func onPages(change func(p *feed.Page, from feed.Position, o feed.ReadOptions)) func(*changefeedtest.Harness) {
	return onSource(func(c *docstore.Container) feed.Source {
		return reading{c, func(ctx context.Context, c *docstore.Container, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			page, err := c.Read(ctx, r, from, o)
			if err == nil {
				change(&page, from, o)
			}
			return page, err
		}}
	})
}

// onChanges makes a defect of a change to each change that is read.
func onChanges(change func(c *feed.Change)) func(*changefeedtest.Harness) {
	return onPages(func(p *feed.Page, _ feed.Position, _ feed.ReadOptions) {
		p.Changes = slices.Clone(p.Changes)
		for i := range p.Changes {
			change(&p.Changes[i])
		}
	})
}

// onReads makes a defect of a change to what is asked for.
func onReads(change func(r *feed.Range, from *feed.Position, o *feed.ReadOptions)) func(*changefeedtest.Harness) {
	return onSource(func(c *docstore.Container) feed.Source {
		return reading{c, func(ctx context.Context, c *docstore.Container, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			change(&r, &from, &o)
			return c.Read(ctx, r, from, o)
		}}
	})
}

// deaf never wakes a waiter.
type deaf struct{ *docstore.Container }

func (deaf) Wait(ctx context.Context, _ feed.Range, _ feed.Position) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// hasty gives the error of a context in place of its cause.
type hasty struct{ *docstore.Container }

func (h hasty) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	if err := h.Container.Wait(ctx, r, from); err != nil {
		return ctx.Err()
	}
	return nil
}

// miscounting counts one change for each transaction.
type miscounting struct{ *docstore.Container }

func (m miscounting) Pending(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Backlog,
	error,
) {
	b, err := m.Container.Pending(ctx, r, from, o)
	b.Items = min(b.Items, 3)
	return b, err
}

// trusting takes a token that it cannot read for the beginning.
type trusting struct{ *docstore.Container }

func (s trusting) Pending(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Backlog,
	error,
) {
	b, err := s.Container.Pending(ctx, r, from, o)
	if errors.Is(err, feed.ErrBadRequest) {
		return s.Container.Pending(ctx, r, feed.Position{Start: feed.FromBeginning()}, o)
	}
	return b, err
}

var sourceMutants = []mutant{
	{
		"loses the last change of a page", changefeedtest.TestSource,
		"pages hold at most so many changes and join without loss",
		onPages(func(p *feed.Page, _ feed.Position, _ feed.ReadOptions) {
			p.Changes = p.Changes[:max(len(p.Changes)-1, min(len(p.Changes), 1))]
		}),
	},
	{
		"ignores the number of items asked for", changefeedtest.TestSource,
		"pages hold at most so many changes and join without loss",
		onReads(func(_ *feed.Range, _ *feed.Position, o *feed.ReadOptions) { o.MaxItems = 0 }),
	},
	{
		"cuts transactions", changefeedtest.TestSource, "a transaction is never cut",
		onPages(func(p *feed.Page, _ feed.Position, o feed.ReadOptions) {
			if o.MaxItems > 0 {
				p.Changes = p.Changes[:min(len(p.Changes), o.MaxItems)]
			}
		}),
	},
	{
		"reverses a page", changefeedtest.TestSource, "changes come in the order of their commits, as stored",
		onPages(func(p *feed.Page, _ feed.Position, _ feed.ReadOptions) {
			p.Changes = slices.Clone(p.Changes)
			slices.Reverse(p.Changes)
		}),
	},
	{
		"gives no token before the first change", changefeedtest.TestSource,
		"an empty container gives an empty page and a position that later changes come after",
		onPages(func(p *feed.Page, from feed.Position, _ feed.ReadOptions) {
			if len(p.Changes) == 0 {
				p.Next = from
			}
		}),
	},
	{
		"gives another ETag than the item has", changefeedtest.TestSource,
		"changes come in the order of their commits, as stored",
		onChanges(func(c *feed.Change) { c.ETag = strings.Trim(c.ETag, `"`) }),
	},
	{
		"takes any token", changefeedtest.TestSource, "what is no token is a bad request",
		onReads(func(_ *feed.Range, from *feed.Position, _ *feed.ReadOptions) {
			if strings.Contains(from.Token, "garbage") {
				from.Token = ""
			}
		}),
	},
	{
		"starts one second early", changefeedtest.TestSource,
		"from a time gives the changes at it and later, to the second",
		onReads(func(_ *feed.Range, from *feed.Position, _ *feed.ReadOptions) {
			if at := from.Start.Time(); !at.IsZero() {
				from.Start = feed.FromTime(at.Add(-time.Second))
			}
		}),
	},
	{
		"starts one second late", changefeedtest.TestSource,
		"what is written after a time was taken comes from that time",
		onReads(func(_ *feed.Range, from *feed.Position, _ *feed.ReadOptions) {
			if at := from.Start.Time(); !at.IsZero() {
				from.Start = feed.FromTime(at.Add(time.Second))
			}
		}),
	},
	{
		"drops the start beside the token", changefeedtest.TestSource, "a start from a time stays beside the token",
		onPages(func(p *feed.Page, _ feed.Position, _ feed.ReadOptions) {
			p.Next.Start = feed.Start{}
		}),
	},
	{
		"hides splits", changefeedtest.TestSource, "a range over several partitions is gone, from whatever position",
		onSource(func(c *docstore.Container) feed.Source {
			return reading{c, func(ctx context.Context, c *docstore.Container, r feed.Range, from feed.Position,
				o feed.ReadOptions,
			) (feed.Page, error) {
				page, err := c.Read(ctx, r, from, o)
				if errors.Is(err, feed.ErrGone) {
					return feed.Page{Next: from}, nil
				}
				return page, err
			}}
		}),
	},
	{
		"forgets positions in a split", changefeedtest.TestSource,
		"children continue from the parent's position without loss or repetition",
		onReads(func(r *feed.Range, from *feed.Position, _ *feed.ReadOptions) {
			if *r != feed.FullRange() {
				*from = feed.Position{Token: from.Token, Start: feed.FromBeginning()}
				from.Token = strings.Replace(from.Token, `"11"`, `"0"`, 1)
			}
		}),
	},
	{
		"widens a range to its partition", changefeedtest.TestSource, "parts of a partition give each change once",
		onReads(func(r *feed.Range, _ *feed.Position, _ *feed.ReadOptions) {
			*r = feed.FullRange()
		}),
	},
	{
		"places all keys in one partition", changefeedtest.TestSource,
		"the place of a key is in the partition that has its items",
		onSource(func(c *docstore.Container) feed.Source { return misplacing{c} }),
	},
	{
		"tokens begin with the change that they are after", changefeedtest.TestSource,
		"the LSN of a token divides the changes",
		onSource(func(c *docstore.Container) feed.Source { return counting{Container: c, off: 1} }),
	},
	{
		"tokens have an LSN more", changefeedtest.TestSource, "the LSN of a token divides the changes after a split",
		onSource(func(c *docstore.Container) feed.Source { return counting{Container: c, ahead: 1} }),
	},
	{
		"each text is a token", changefeedtest.TestSource, "a text that is no token has no LSN",
		onSource(func(c *docstore.Container) feed.Source { return counting{Container: c, trusting: true} }),
	},
	{
		"reads all logical partitions", changefeedtest.TestSource,
		"a logical partition can be read alone, transactions whole",
		onReads(func(_ *feed.Range, _ *feed.Position, o *feed.ReadOptions) { o.Key = "" }),
	},
	{
		"has the ETag of another version in a body", changefeedtest.TestSource,
		"what a body says of itself is what the change says",
		onChanges(func(c *feed.Change) {
			c.Body = bytes.Replace(c.Body, []byte(`"_etag":"\"`), []byte(`"_etag":"\"x`), 1)
		}),
	},
	{
		"counts from the beginning after any token", changefeedtest.TestSource, "pending refuses what a read refuses",
		onSource(func(c *docstore.Container) feed.Source { return trusting{c} }),
	},
	{
		"has no previous LSN", changefeedtest.TestSource,
		"all versions and deletes shows every operation, chained by LSN",
		onChanges(func(c *feed.Change) { c.PreviousLSN = 0 }),
	},
	{
		"calls a replace an upsert", changefeedtest.TestSource,
		"all versions and deletes shows every operation, chained by LSN",
		onChanges(func(c *feed.Change) {
			if c.Op == feed.OpReplace {
				c.Op = feed.OpUpsert
			}
		}),
	},
	{
		"has no previous image", changefeedtest.TestSource, "all versions and deletes shows the image before",
		onChanges(func(c *feed.Change) { c.Previous = nil }),
	},
	{
		"never wakes", changefeedtest.TestSource, "waiting ends with a commit, and a read then finds it",
		onSource(func(c *docstore.Container) feed.Source { return deaf{c} }),
	},
	{
		"hides the cause", changefeedtest.TestSource, "waiting ends with the cause of its context",
		onSource(func(c *docstore.Container) feed.Source { return hasty{c} }),
	},
	{
		"counts wrongly", changefeedtest.TestSource, "pending counts items, in transactions too, and finds the oldest",
		onSource(func(c *docstore.Container) feed.Source { return miscounting{c} }),
	},
	{
		"has an ability that it denies", changefeedtest.TestSource, "a page can be read again",
		func(h *changefeedtest.Harness) { h.Lacks = append(h.Lacks, changefeedtest.Waiting) },
	},
	{
		"lacks an ability without saying so", changefeedtest.TestSource, "waiting ends at once when there are changes",
		onSource(func(c *docstore.Container) feed.Source { return struct{ feed.Source }{c} }),
	},
}

// keeping replaces methods of a lease store.
type keeping struct {
	*docstore.Leases
	list   func(context.Context, *docstore.Leases) ([]feed.Record, time.Time, error)
	create func(context.Context, *docstore.Leases, feed.Record) (feed.Record, error)
	update func(context.Context, *docstore.Leases, feed.Record) (feed.Record, error)
	follow func(context.Context, *docstore.Leases, string) ([]feed.Record, string, time.Time, error)
}

func (k keeping) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	if k.list != nil {
		return k.list(ctx, k.Leases)
	}
	return k.Leases.List(ctx)
}

func (k keeping) Create(ctx context.Context, l feed.Record) (feed.Record, error) {
	if k.create != nil {
		return k.create(ctx, k.Leases, l)
	}
	return k.Leases.Create(ctx, l)
}

func (k keeping) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if k.update != nil {
		return k.update(ctx, k.Leases, l)
	}
	return k.Leases.Update(ctx, l)
}

func (k keeping) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	if k.follow != nil {
		return k.follow(ctx, k.Leases, cursor)
	}
	return k.Leases.Follow(ctx, cursor)
}

// onLeases makes a defect of replaced methods.
func onLeases(k keeping) func(*changefeedtest.Harness) {
	return func(h *changefeedtest.Harness) {
		h.Leases = func(t *testing.T) changefeedtest.LeaseContainer {
			c := leaseContainer(t)
			unit := c.Unit
			c.Unit = func(t *testing.T, processor string) feed.LeaseStore {
				mine := k
				mine.Leases, _ = unit(t, processor).(*docstore.Leases)
				return mine
			}
			return c
		}
	}
}

// stored is the record with the same kind and token.
func stored(ctx context.Context, s *docstore.Leases, like feed.Record) feed.Record {
	records, _, _ := s.List(ctx)
	for _, l := range records {
		if l.Kind == like.Kind && l.Token == like.Token {
			return l
		}
	}
	return feed.Record{}
}

// lagging shows in each listing what the one before would have.
func lagging() func(*changefeedtest.Harness) {
	var mu sync.Mutex
	var before []feed.Record
	return onLeases(keeping{list: func(ctx context.Context, s *docstore.Leases) ([]feed.Record, time.Time, error) {
		mu.Lock()
		defer mu.Unlock()
		records, now, err := s.List(ctx)
		before, records = records, before
		return records, now, err
	}})
}

// keptByCaller lists records with the properties that were given with the last write, not a copy of them.
func keptByCaller() func(*changefeedtest.Harness) {
	var mu sync.Mutex
	given := map[string]map[string]string{}
	return onLeases(keeping{
		create: func(ctx context.Context, s *docstore.Leases, l feed.Record) (feed.Record, error) {
			created, err := s.Create(ctx, l)
			mu.Lock()
			defer mu.Unlock()
			given[created.ID] = l.Properties
			return created, err
		},
		list: func(ctx context.Context, s *docstore.Leases) ([]feed.Record, time.Time, error) {
			records, now, err := s.List(ctx)
			mu.Lock()
			defer mu.Unlock()
			for i := range records {
				if p := given[records[i].ID]; p["more"] != "" {
					records[i].Properties = p
				}
			}
			return records, now, err
		},
	})
}

// goingBack gives the last but one version of a record after the last.
func goingBack() func(*changefeedtest.Harness) {
	var mu sync.Mutex
	seen := map[string]feed.Record{}
	return onLeases(keeping{follow: func(ctx context.Context, s *docstore.Leases, cursor string) ([]feed.Record, string,
		time.Time, error,
	) {
		changed, next, now, err := s.Follow(ctx, cursor)
		mu.Lock()
		defer mu.Unlock()
		for _, l := range changed {
			if old, known := seen[l.ID]; known {
				changed = append(changed, old)
			}
			seen[l.ID] = l
		}
		return changed, next, now, err
	}})
}

var leaseMutants = []mutant{
	{
		"updates without a condition", changefeedtest.TestLeaseStore, "of concurrent updates one wins",
		onLeases(keeping{update: func(ctx context.Context, s *docstore.Leases, l feed.Record) (updated feed.Record,
			err error,
		) {
			for err = feed.ErrConflict; errors.Is(err, feed.ErrConflict); {
				l.ETag = stored(ctx, s, l).ETag
				updated, err = s.Update(ctx, l)
			}
			return updated, err
		}}),
	},
	{
		"creates over what is there", changefeedtest.TestLeaseStore, "create refuses what is there",
		onLeases(keeping{create: func(ctx context.Context, s *docstore.Leases, l feed.Record) (feed.Record, error) {
			created, err := s.Create(ctx, l)
			if errors.Is(err, feed.ErrConflict) {
				l.ETag = stored(ctx, s, l).ETag
				return s.Update(ctx, l)
			}
			return created, err
		}}),
	},
	{
		"keeps the properties of the caller", changefeedtest.TestLeaseStore,
		"records belong to who writes and who reads them",
		keptByCaller(),
	},
	{
		"updates what is gone", changefeedtest.TestLeaseStore, "update and delete of what is gone tell so",
		onLeases(keeping{update: func(ctx context.Context, s *docstore.Leases, l feed.Record) (feed.Record, error) {
			updated, err := s.Update(ctx, l)
			if errors.Is(err, feed.ErrNotFound) {
				return s.Create(ctx, l)
			}
			return updated, err
		}}),
	},
	{
		"loses the unknown in an update", changefeedtest.TestLeaseStore,
		"what a record does not know of its document is kept",
		onLeases(keeping{update: func(ctx context.Context, s *docstore.Leases, l feed.Record) (feed.Record, error) {
			l.Raw = nil
			return s.Update(ctx, l)
		}}),
	},
	{
		"answers an update without the document", changefeedtest.TestLeaseStore,
		"what a record does not know of its document is kept",
		onLeases(keeping{update: func(ctx context.Context, s *docstore.Leases, l feed.Record) (feed.Record, error) {
			updated, err := s.Update(ctx, l)
			updated.Raw = nil
			return updated, err
		}}),
	},
	{
		"lists what was there at the last listing", changefeedtest.TestLeaseStore,
		"a listing has every write that was acknowledged before it",
		lagging(),
	},
	{
		"says conflict for an ended context", changefeedtest.TestLeaseStore,
		"requests with an ended context are errors",
		onLeases(keeping{update: func(ctx context.Context, s *docstore.Leases, l feed.Record) (feed.Record, error) {
			updated, err := s.Update(ctx, l)
			if ctx.Err() != nil {
				return l, feed.ErrConflict
			}
			return updated, err
		}}),
	},
	{
		"follows a record back", changefeedtest.TestLeaseStore, "following a record gives its last version last",
		goingBack(),
	},
	{
		"lists leases only", changefeedtest.TestLeaseStore, "every kind is listed, each with its own names",
		onLeases(keeping{list: func(ctx context.Context, s *docstore.Leases) ([]feed.Record, time.Time, error) {
			records, now, err := s.List(ctx)
			return slices.DeleteFunc(records, func(l feed.Record) bool { return l.Kind != feed.KindLease }), now, err
		}}),
	},
	{
		"lists no kinds of later versions", changefeedtest.TestLeaseStore,
		"kinds and states of later versions are kept",
		onLeases(keeping{list: func(ctx context.Context, s *docstore.Leases) ([]feed.Record, time.Time, error) {
			records, now, err := s.List(ctx)
			known := []feed.Kind{feed.KindLease, feed.KindHost, feed.KindInfo, feed.KindLock}
			return slices.DeleteFunc(records, func(l feed.Record) bool {
				return !slices.Contains(known, l.Kind)
			}), now, err
		}}),
	},
	{
		"takes states of later versions for live", changefeedtest.TestLeaseStore,
		"kinds and states of later versions are kept",
		onLeases(keeping{update: func(ctx context.Context, s *docstore.Leases, l feed.Record) (feed.Record, error) {
			if l.State != feed.StateSplitting && l.State != feed.StateRetired {
				l.State = feed.StateLive
			}
			return s.Update(ctx, l)
		}}),
	},
	{
		"believes the writer's clock", changefeedtest.TestLeaseStore,
		"the store's clock stamps records, whatever the writer says",
		onLeases(keeping{list: func(ctx context.Context, s *docstore.Leases) ([]feed.Record, time.Time, error) {
			records, now, err := s.List(ctx)
			for i := range records {
				records[i].Updated = records[i].Timestamp
			}
			return records, now, err
		}}),
	},
	{
		"hides broken documents", changefeedtest.TestLeaseStore,
		"a document that is no record is listed with its error",
		onLeases(keeping{list: func(ctx context.Context, s *docstore.Leases) ([]feed.Record, time.Time, error) {
			records, now, err := s.List(ctx)
			return slices.DeleteFunc(records, func(l feed.Record) bool { return l.Err != nil }), now, err
		}}),
	},
	{
		"forgets the epoch", changefeedtest.TestLeaseStore, "a record comes back as it was written",
		onLeases(keeping{create: func(ctx context.Context, s *docstore.Leases, l feed.Record) (feed.Record, error) {
			l.Epoch = ""
			return s.Create(ctx, l)
		}}),
	},
	{
		"follows with gaps", changefeedtest.TestLeaseStore, "following never misses a change",
		onLeases(keeping{follow: func(ctx context.Context, s *docstore.Leases, cursor string) ([]feed.Record, string,
			time.Time, error,
		) {
			changed, next, now, err := s.Follow(ctx, cursor)
			return slices.DeleteFunc(changed, func(l feed.Record) bool {
				return l.Attempts%25 == 0 && l.Token == "3"
			}), next, now, err
		}}),
	},
}

// writing replaces Commit of a store.
type writing func(context.Context, feed.PartitionKey, []feed.Write) ([]feed.Result, error)

func (w writing) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	return w(ctx, key, writes)
}

// onCommits makes a defect of another Commit.
func onCommits(commit func(ctx context.Context, c feed.Committer, key feed.PartitionKey,
	writes []feed.Write) ([]feed.Result, error),
) func(*changefeedtest.Harness) {
	return func(h *changefeedtest.Harness) {
		h.Container = func(t *testing.T, c changefeedtest.Container) changefeedtest.Store {
			s := monitored(t, c)
			inner := s.Committer
			s.Committer = writing(func(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result,
				error,
			) {
				return commit(ctx, inner, key, writes)
			})
			return s
		}
	}
}

// oneByOne commits each write on its own.
func oneByOne(ctx context.Context, c feed.Committer, key feed.PartitionKey, writes []feed.Write) ([]feed.Result,
	error,
) {
	var all []feed.Result
	for i, w := range writes {
		results, err := c.Commit(ctx, key, []feed.Write{w})
		if refused, ok := errors.AsType[*feed.WriteError](err); ok {
			refused.Index = i
		}
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

var commitMutants = []mutant{
	{
		"has no transactions", changefeedtest.TestCommitter,
		"a batch applies all writes or none, and the error tells which was refused", onCommits(oneByOne),
	},
	{
		"has an LSN for each write", changefeedtest.TestCommitter, "a batch has one LSN, and a result for each write",
		onCommits(oneByOne),
	},
	{"takes any number of writes", changefeedtest.TestCommitter, "a batch has 1 to 100 writes", onCommits(oneByOne)},
	{
		"ignores ETags", changefeedtest.TestCommitter, "an ETag that is not the stored one is refused",
		onCommits(func(ctx context.Context, c feed.Committer, key feed.PartitionKey,
			writes []feed.Write,
		) ([]feed.Result, error) {
			writes = slices.Clone(writes)
			for i := range writes {
				writes[i].IfMatch = ""
			}
			return c.Commit(ctx, key, writes)
		}),
	},
	{
		"does not tell which write", changefeedtest.TestCommitter,
		"a batch applies all writes or none, and the error tells which was refused",
		onCommits(func(ctx context.Context, c feed.Committer, key feed.PartitionKey,
			writes []feed.Write,
		) ([]feed.Result, error) {
			results, err := c.Commit(ctx, key, writes)
			if refused, ok := errors.AsType[*feed.WriteError](err); ok {
				refused.Index = 0
			}
			return results, err
		}),
	},
	{
		"keeps the caller's key", changefeedtest.TestCommitter, "an item belongs to the batch's partition key",
		onCommits(func(ctx context.Context, c feed.Committer, key feed.PartitionKey,
			writes []feed.Write,
		) ([]feed.Result, error) {
			writes = slices.Clone(writes)
			for i, w := range writes {
				var item map[string]json.RawMessage
				if json.Unmarshal(w.Body, &item) == nil {
					item["pk"] = json.RawMessage(strings.Trim(string(key), "[]"))
					writes[i].Body, _ = json.Marshal(item)
				}
			}
			return c.Commit(ctx, key, writes)
		}),
	},
	{
		"says created of everything", changefeedtest.TestCommitter, "created tells whether the item was new",
		onCommits(func(ctx context.Context, c feed.Committer, key feed.PartitionKey,
			writes []feed.Write,
		) ([]feed.Result, error) {
			results, err := c.Commit(ctx, key, writes)
			for i := range results {
				results[i].Created = true
			}
			return results, err
		}),
	},
}
