package docstore

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// WithFS makes the store stand on a file system.
func (o Options) WithFS(fs vfs.FS) Options {
	o.fs = fs
	return o
}

// Small makes the engine's logs and tables small, so that there are many.
func (o Options) Small() Options {
	o.small, o.buffer = true, 64<<10
	return o
}

// WithCells makes the cells of tallies this small.
func (o Options) WithCells(lsns int) Options {
	o.cells = cells(lsns)
	return o
}

// Untally makes the store one of the version before, which has no tallies.
func (db *DB) Untally(c *Container) error {
	return db.committer.runAlone(life{db.stop}, func(g *group) error {
		from := tableKey(tableTally, c.num, 0)
		g.ranges = append(g.ranges, [2][]byte{from, engine.After(from)})
		g.set(metaKey("format"), []byte(formatNoTally))
		c.tallies.on = false
		clear(c.tallies.rows)
		l := c.layout.Load().clone()
		l.tallied = false
		return g.storeLayout(c, l, nil)
	})
}

// Tally gives a container of an older store its tallies.
func (db *DB) Tally(c *Container) error { return c.tallies.buildTallies(life{db.stop}) }

// Tallied tells whether it has them.
func (c *Container) Tallied() bool { return c.layout.Load().tallied }

// RaiseTally has the first cell of the first log say one version too many.
func (db *DB) RaiseTally(c *Container) error {
	w := db.eng.NewBatch(0)
	r := c.tallies.rows[tallyAt{}]
	r[0]++
	w.Set(tallyKey(c.num, tallyAt{}), encodeNumbers(r[:]...))
	return w.Commit()
}

// DropMoved removes the index of moved documents behind the store's back.
func (db *DB) DropMoved(c *Container) error { return db.dropTable(tableMoved, c) }

// DropMovedItem removes an item from the index of moved documents behind the store's back. If number is not 0, the item
// gets another place in the index.
func (db *DB) DropMovedItem(c *Container, id string, number int64) error {
	from := tableKey(tableMoved, c.num, 0)
	it, err := db.eng.Cursor(from, engine.After(from))
	if err != nil {
		return err
	}
	defer it.CloseInto(&err, "close cursor")
	w := db.eng.NewBatch(0)
	for ok := it.First(); ok; ok = it.Next() {
		log, _, doc, err := splitMoved(tailOf(it.Key()))
		if err != nil {
			return err
		}
		if _, _, own, _ := splitDoc(doc); string(own) == id {
			w.Drop(bytes.Clone(it.Key()))
			if number != 0 {
				w.Set(movedKey(c.num, log, number, doc), nil)
			}
		}
	}
	return errors.Join(it.Err(), w.Commit())
}

// AddMoved adds an item that was never replaced to the index of moved documents behind the store's back.
func (db *DB) AddMoved(c *Container, key feed.PartitionKey, id string, number int64) error {
	rng, pk, err := c.layout.Load().keyRange(string(key))
	if err != nil {
		return err
	}
	w := db.eng.NewBatch(0)
	w.Set(movedKey(c.num, 0, number, tailOf(docKey(c.num, rng.Min, pk, id))), nil)
	return w.Commit()
}

// DropVersion removes a version from the first log behind the store's back.
func (db *DB) DropVersion(c *Container, lsn int64) error {
	w := db.eng.NewBatch(0)
	w.Drop(logKey(tableLog, c.num, addr{lsn: lsn}))
	return w.Commit()
}

// DropHashed removes the mark of a store whose documents have hashes for numbers behind the store's back.
func (db *DB) DropHashed() error {
	w := db.eng.NewBatch(0)
	w.Drop(metaKey("hashed"))
	db.hashed = false
	return w.Commit()
}

// Hashed reports whether documents have hashes for numbers.
func (db *DB) Hashed() bool { return db.hashed }

// Passing reports whether a reader has the memory for passes.
func (db *DB) Passing() bool { return db.passing.Load() }

// MostPassed reads all documents of the first partition in order, and returns how much memory passes have used at most.
func (s *Snapshot) MostPassed(ctx context.Context) (most int, err error) {
	m, err := s.newMerge(s.Partitions()[0].Range, 0)
	if err != nil {
		return 0, err
	}
	defer m.endTurn()
	for {
		if _, found, err := m.nextItem(ctx); err != nil || !found {
			return most, err
		}
		held := 0
		for i := range m.moved {
			if m.holdsTurn && m.moved[i].loaded {
				held += len(m.moved[i].item.Body) + rowBytes
			}
		}
		most = max(most, held)
	}
}

// DropTallies removes all tallies behind the store's back.
func (db *DB) DropTallies(c *Container) error {
	return db.dropTable(tableTally, c)
}

func (db *DB) dropTable(table byte, c *Container) error {
	from := tableKey(table, c.num, 0)
	w := db.eng.NewBatch(0)
	w.DropRange(from, engine.After(from))
	return w.Commit()
}

// Contradiction is what salvage says of a container whose records are these, if no file is lost.
func Contradiction(record bool, counted, slots, head, newest int64, orphans int) string {
	c := &salvaged{
		SalvagedContainer: SalvagedContainer{Counted: counted, Head: head}, markless: true,
		fit: fit{slots: slots, newest: newest, orphans: orphans},
	}
	if record {
		c.layout = &layout{}
	}
	s := salvager{w: &engine.Wreck{}, containers: map[uint32]*salvaged{1: c}}
	if err := s.findMisfits(); err != nil || len(s.misfits) == 0 {
		return ""
	}
	return s.misfits[0].Reason
}

// SalvageFrom is Salvage of a store on a file system.
func SalvageFrom(ctx context.Context, fs vfs.FS, dir string, visit func(string, Item) error) (*Salvaged, error) {
	return salvage(ctx, fs, dir, visit)
}

// WithBuffer makes the store write tables after so many bytes.
func (o Options) WithBuffer(bytes uint64) Options {
	o.buffer = bytes
	return o
}

// NewMem is a file system in memory.
func NewMem() *vfs.MemFS { return vfs.NewMem() }

// ErrDisk is what an injected fault returns.
var ErrDisk = errors.New("injected disk error")

// Failing is a file system on which f decides about each write.
func Failing(fs vfs.FS, f func(write bool, path string) bool) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if f(op.Kind.ReadOrWrite() == errorfs.OpIsWrite, op.Path) {
			return ErrDisk
		}
		return nil
	}))
}

// LogScan reads the log of partition 0 of the first container.
func (db *DB) LogScan() (n, bytes int, err error) {
	from, to := logBounds(tableLog, 1, 0, -1, 1<<62)
	it, err := db.eng.Cursor(from, to)
	if err != nil {
		return 0, 0, err
	}
	defer it.CloseInto(&err, "close")
	var buf []byte
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.Value()
		if err != nil {
			return 0, 0, err
		}
		buf = append(buf[:0], v...)
		bytes += len(buf)
		n++
	}
	return n, bytes, it.Err()
}

// Damage removes stored versions behind the store's back.
func (db *DB) Damage(c *Container) error {
	from, to := logBounds(tableLog, c.num, 0, -1, 1<<62)
	w := db.eng.NewBatch(0)
	w.DropRange(from, to)
	return w.Commit()
}

// Orphan removes the entries of documents in the primary index behind the store's back.
func (db *DB) Orphan(c *Container) error {
	return db.dropTable(tableDoc, c)
}

// SetFormat writes a format number.
func (db *DB) SetFormat(f string) error {
	return db.eng.SetFormat(f)
}

// silent drops the log of the engine's library.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

// FormatOf reads the format of a store that nobody has open.
func FormatOf(fs vfs.FS, dir string) (string, error) {
	db, err := pebble.Open(dir, &pebble.Options{
		FS: fs, ReadOnly: true, FormatMajorVersion: pebble.FormatNewest,
		Logger: silent{},
	})
	if err != nil {
		return "", err
	}
	value, closer, err := db.Get(metaKey("format"))
	if err != nil {
		return "", errors.Join(err, db.Close())
	}
	format := string(value)
	return format, errors.Join(closer.Close(), db.Close())
}

// TryOlder does to a store what a program did that knew neither its format nor the inventory: the
// engine was opened, and wrote, before the program refused.
func TryOlder(fs vfs.FS, dir string) error {
	db, err := pebble.Open(dir, &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	if err != nil {
		return err
	}
	return db.Close()
}

// MoveSome moves one group out of a former log; false tells that there was none.
func (db *DB) MoveSome(c *Container) (bool, error) {
	for _, n := range c.layout.Load().former {
		if some, err := (&sweep{c: c}).moveSome(life{db.stop}, n); some || err != nil {
			return some, err
		}
	}
	return false, nil
}

// Versions counts the stored versions of a container.
func (db *DB) Versions(c *Container) (n int) {
	from := tableKey(tableLog, c.num, 0)
	it, err := db.eng.Cursor(from, engine.After(from))
	if err != nil {
		return -1
	}
	defer it.CloseInto(&err, "close")
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n
}

// EachVersion tells where the stored versions of a container are.
func (db *DB) EachVersion(c *Container, visit func(lsn int64, idx int)) (err error) {
	from := tableKey(tableLog, c.num, 0)
	it, err := db.eng.Cursor(from, engine.After(from))
	if err != nil {
		return err
	}
	defer it.CloseInto(&err, "close")
	for ok := it.First(); ok; ok = it.Next() {
		a := parseAddr(tailOf(it.Key()))
		visit(a.lsn, int(a.idx))
	}
	return it.Err()
}

// Compact rewrites all tables into one level.
func (db *DB) Compact(ctx context.Context) error {
	return db.eng.Compact(ctx, []byte{0}, []byte{0xff})
}

// SubmitLate puts a request into the queue of a closed store, as a writer does that has
// looked just before, and waits for its end.
func (db *DB) SubmitLate(ctx context.Context) error {
	r := &transaction{control: func(*group) error { return nil }, done: make(chan struct{})}
	db.committer.queue <- r
	return db.committer.awaitOutcome(ctx, r)
}

// Hold keeps the committer busy until release is called.
func (db *DB) Hold() (release func()) {
	held, done := make(chan struct{}), make(chan struct{})
	r := &transaction{control: func(*group) error { close(held); <-done; return nil }, done: make(chan struct{})}
	db.committer.queue <- r
	<-held
	return func() { close(done); <-r.done }
}

// Glitch has a container's time be this far ahead of the clock for one write.
func (db *DB) Glitch(c *Container, ahead time.Duration) error {
	return db.committer.runAlone(life{db.stop}, func(g *group) error {
		t := g.head(c)
		t.time += ahead.Milliseconds()
		g.set(metaKey("test"), nil)
		return nil
	})
}

// StepClock sets the machine's clock forward, as far as this container can see.
func (c *Container) StepClock(by time.Duration) {
	c.clock.recordCommit(c.clock.now() + by.Milliseconds())
}

// Dir is where the store is.
func (db *DB) Dir() string { return db.dir }

// Resting has nothing swept but by [DB.Sweep].
func (o Options) Resting() Options {
	o.resting = true
	return o
}

// Sweep is a turn of the sweeper at a container.
func (db *DB) Sweep(c *Container) { (&sweep{c: c}).run(life{db.stop}) }

// ExpireSeenAt has the sweeper delete what it would have found at a time, if it is still due.
func (c *Container) ExpireSeenAt(ctx context.Context, t time.Time) (int, error) {
	s := sweep{c: c}
	keys, err := s.expiredByIndex(t.UnixMilli())
	if err != nil {
		return 0, err
	}
	return s.expireFound(ctx, expired{keys: keys})
}

// ExpireBehind has the sweeper delete what it has found before f.
func (c *Container) ExpireBehind(ctx context.Context, f func()) (int, error) {
	s := sweep{c: c}
	found, err := s.findExpired(ctx)
	if err != nil {
		return 0, err
	}
	f()
	return s.expireFound(ctx, found)
}

// ErrMoved is what a reader by a former layout gets.
var ErrMoved = errMoved

// OpenBehind opens the feed of the first partition by the layout as it is before f.
func (db *DB) OpenBehind(c *Container, f func()) error {
	l := c.layout.Load()
	f()
	feed, err := moment{c: c, l: l, head: c.head.Load()}.feed(l.logsOf(l.parts[0]), everything(0))
	if err != nil {
		return err
	}
	return feed.close()
}

// SnapshotBehind takes a snapshot by the layout as it is before f.
func (c *Container) SnapshotBehind(f func()) error {
	s := &Snapshot{moment{c: c, l: c.layout.Load()}}
	f()
	return errors.Join(s.holdState(), s.Close())
}

// WithIDs is [Snapshot.WithIDs] of a snapshot of its own.
func (c *Container) WithIDs(ctx context.Context, prefix string, after int64) iter.Seq2[Item, error] {
	return inSnapshot(ctx, c, func(s *Snapshot) iter.Seq2[Item, error] { return s.WithIDs(ctx, prefix, after) })
}

// FailControl runs a control that makes a database, changes the container and drops its documents,
// and fails then.
func (db *DB) FailControl(c *Container) error {
	return db.committer.runAlone(life{db.stop}, func(g *group) error {
		if _, err := g.newDatabase("half", nil); err != nil {
			return err
		}
		h := g.head(c)
		epk := h.l.at("").rng.Min
		h.countDocuments(h.l.at(epk), epk, 1)
		h.lsn++
		g.ranges = append(g.ranges, [2][]byte{tableKey(tableDoc, c.num, 0), engine.After(tableKey(tableDoc, c.num, 0))})
		g.countLiving(c, addr{lsn: 1}, -1)
		l := c.layout.Load().clone()
		l.floor = farAway
		if err := g.storeLayout(c, l, nil); err != nil {
			return err
		}
		return ErrDisk
	})
}

// HoldGate keeps the gate of the first partition from being taken and opened until release.
func (c *Container) HoldGate() (release func()) {
	g := &c.layout.Load().parts[0].gate
	g.mu.Lock()
	return g.mu.Unlock
}

// PublishAtTheGate is what the committer publishes of a change, as far as a waiter sees it, at a
// gate that is held and at which nobody waits yet.
func (c *Container) PublishAtTheGate() {
	c.layout.Load().parts[0].newest.Add(1)
	c.head.Add(1)
}

// Gaps is [gaps], of LSNs in a list.
func Gaps(inTables int64, inLogs []int64, head int64) []LSNs {
	have := map[int64]bool{}
	for _, lsn := range inLogs {
		have[lsn] = true
	}
	return gaps(inTables, have, head)
}

// WithPlain is a store that is compressed when it has more bytes than that on the disk.
func (o Options) WithPlain(bytes int64) Options {
	o.plain = bytes
	return o
}
