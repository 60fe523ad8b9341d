package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// An operator skips single changes and replays keys, in worlds that are not strict. Then this must hold:
//
//   - a lease names changes to skip, or sets a key aside for a replay, only for an operator who has asked for it, and
//     once
//   - it names exactly the changes asked for; no handler gets one of these afterwards, until a reset or a
//     replay brings it back. All other changes are still to be handled
//   - all changes of a replayed key after its position are to be handled again. The other checks say: nothing else
//     comes again

// single is a request of a call about single changes, or about a key.
type single struct {
	changes []version // to skip
	key     feed.PartitionKey
	wants   func(of feed.Range, at feed.Position) string // of a replay
	done    bool
}

// takeSingle skips something which fails, replays a key, or removes unneeded records.
func (s *steerer) takeSingle() {
	switch s.dice.IntN(5) {
	case 0, 1:
		s.skip()
	case 2, 3:
		s.replay()
	default:
		s.cleanUp()
	}
}

// skip skips a change at which a lease fails, or what fails together with it.
func (s *steerer) skip() {
	u, _ := s.open(nil)
	all, err := u.Failing(s.world.ctx, admin.All())
	if err != nil || len(all) == 0 {
		s.world.ledger.note("the operator finds nothing to skip: %v", err)
		return
	}
	f := all[s.dice.IntN(len(all))]
	if s.dice.IntN(2) == 0 {
		i := s.dice.IntN(len(f.Changes))
		f.Changes = f.Changes[i : i+1]
	}
	asked := &single{}
	for _, c := range f.Changes {
		asked.changes = append(asked.changes, version{c.Key, c.ID, c.LSN})
	}
	s.world.ledger.note("the operator skips %v of %s", asked.changes, f.Lease.Token)
	done := false
	_, err = s.callAs(s.calling(asked), func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
		got, err := u.Skip(ctx, f)
		done = got.Done
		return nil, err
	})
	s.world.ledger.note("the operator's skip of %v: done %v, %v", asked.changes, done, err)
	if done {
		s.world.ledger.checkSingle(asked)
	}
}

// calling is a call of the operator.
func (s *steerer) calling(asked *single) *instance {
	return &instance{name: "operator", world: s.world, steers: true, single: asked}
}

// replay replays a key from the beginning, from a time, or from a former position of its lease.
func (s *steerer) replay() {
	key := feed.Key(s.world.cityName(s.dice.IntN(s.world.keys)))
	now, g := time.Now(), s.world.ledger
	to := feed.FromBeginning()
	if s.world.mode == feed.AllVersionsAndDeletes || s.dice.IntN(3) > 0 {
		to = feed.FromTime(now.Add(-time.Duration(s.dice.Int64N(int64(3 * time.Minute)))))
	}
	asked := &single{key: key, wants: g.wantsStart(to, now)}
	g.note("the operator replays %s from %v", key, to)
	steps, err := s.callAs(s.calling(asked), func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
		return u.ResetKey(ctx, key, to)
	})
	g.note("the operator's replay of %s: %v", key, err)
	if len(steps) == 1 && steps[0].Done {
		g.checkSingle(asked)
	}
}

// cleanUp removes unneeded records. The witness sees which.
func (s *steerer) cleanUp() {
	removed := 0
	_, err := s.call(nil, func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
		found, err := u.Surplus(ctx)
		if err == nil {
			found, err = u.CleanUp(ctx, found)
		}
		removed = len(found)
		return nil, err
	})
	s.world.ledger.note("the operator cleans up %d records: %v", removed, err)
}

// noteSingle notes a request for a skip or a replay.
func (g *ledger) noteSingle(by *instance, record feed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.steering.singles[record.Properties[notes.CallerProperty]] = by.single
}

// lastServed is the last caller whose skip or replay a lease has seen.
func lastServed(record feed.Record) string {
	all := strings.Fields(record.Properties[notes.ServedProperty])
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// noteServed carries a skip or a replay out in the model, if a write is one.
func (g *ledger) noteServed(by *instance, was, record feed.Record) {
	caller := lastServed(record)
	if caller == lastServed(was) {
		g.checkNoSkips(by, was, record)
		return
	}
	asked := by.single
	if !by.steers {
		asked = g.steering.singles[caller]
	}
	switch {
	case asked == nil:
		g.breach("%s has changed %s for %s, who has asked for nothing", by, record.Token, caller)
		return
	case g.steering.served[caller]:
		g.breach("%s has done for %s again what was done, with %s", by, caller, record.Token)
	case record.State != feed.StateLive || !record.Free():
		g.breach("%s has changed %s for %s in state %v, owner %q", by, record.Token, caller, record.State, record.Owner)
	}
	g.steering.served[caller] = true
	if asked.key != "" {
		g.applyReplay(record, asked)
		return
	}
	before, now := g.skipsOf(was), g.skipsOf(record)
	for v := range now {
		if !before[v] && !slices.Contains(asked.changes, v) {
			g.breach("%s skips %v of %s, and nobody has asked for that", by, v, record.Token)
		}
	}
	for _, v := range asked.changes {
		if !now[v] {
			g.breach("%s does not skip %v of %s, and has said so", by, v, record.Token)
		}
		g.tell("skipped: %v", v)
		g.steering.skipped[v] = time.Now()
		delete(g.open, v)
	}
	asked.done = true
}

// checkNoSkips checks that no change is skipped without an operator's request.
func (g *ledger) checkNoSkips(by *instance, was, record feed.Record) {
	before := g.skipsOf(was)
	for v := range g.skipsOf(record) {
		if !before[v] {
			g.breach("%s skips %v of %s for nobody", by, v, record.Token)
		}
	}
}

// skipsOf reads the changes named by a lease.
func (g *ledger) skipsOf(record feed.Record) map[version]bool {
	text := record.Properties[notes.SkipsProperty]
	if text == "" {
		return nil
	}
	var note notes.Skips
	if err := json.Unmarshal([]byte(text), &note); err != nil {
		g.breach("property %s of %s: %v", notes.SkipsProperty, record.Token, err)
	}
	all := map[version]bool{}
	for _, c := range note.Changes {
		all[version{feed.PartitionKey(c.Key), c.ID, c.LSN}] = true
	}
	return all
}

// applyReplay opens the changes of a key after the position again from which a lease has it set aside.
func (g *ledger) applyReplay(record feed.Record, asked *single) {
	note := g.noteOf(record)
	i := slices.IndexFunc(note.aside.Keys, func(k notes.AsideKey) bool { return k.Key == string(asked.key) })
	if i < 0 {
		g.breach("%s is not set aside in %s after its replay", asked.key, record.Token)
		return
	}
	from := feed.At(note.aside.Keys[i].From)
	if wrong := asked.wants(record.Range, from); wrong != "" {
		g.breach("replay: %s of %s begins at %v: %s", asked.key, record.Token, from, wrong)
	}
	now := time.Now()
	g.freed[asked.key] = true // it is not held any more, and its letters stay
	for _, versions := range g.items[asked.key] {
		for _, v := range versions {
			if v.lsn > lsnOf(from.Token) {
				g.tell("reopened: %v", v)
				g.reopen(v, now)
			}
		}
	}
	asked.done = true
}

// checkSingle checks that the actions reported as done by a call were done.
func (g *ledger) checkSingle(asked *single) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !asked.done && !g.hasSkipped(asked) {
		g.breach("the call says that %s is done, and nobody has done it", asked)
	}
}

// hasSkipped reports whether all changes of a skip are skipped: an equal request that an earlier call could not
// withdraw may have been served in place of this one.
func (g *ledger) hasSkipped(asked *single) bool {
	isOpen := func(v version) bool { return g.steering.skipped[v].IsZero() }
	return len(asked.changes) > 0 && !slices.ContainsFunc(asked.changes, isOpen)
}

// String names the request.
func (s *single) String() string {
	if s.key != "" {
		return fmt.Sprintf("the replay of %s", s.key)
	}
	return fmt.Sprintf("the skip of %v", s.changes)
}

// mergeIsKnown is how long after a merge a list of partitions may still be older than the merge.
const mergeIsKnown = time.Minute

// checkSkipped checks that no skipped change comes. A letter of it may. After a merge of partitions the change itself
// may, because LSNs name other changes then; also if who skipped it did not know of the merge yet.
func (g *ledger) checkSkipped(c *call) {
	for _, change := range c.changes {
		v := versionOf(change)
		if on := g.steering.skipped[v]; !on.IsZero() && !c.redriven && !g.steering.merged.Add(mergeIsKnown).After(on) {
			g.breach("%s got %v, which was skipped at %v", c.by, v, on.Format(time.TimeOnly))
		}
	}
}

// noteMerge notes a merge of partitions.
func (g *ledger) noteMerge() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.steering.merged = time.Now()
}
