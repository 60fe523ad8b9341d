package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
)

// A held letter that is handed over before an earlier one is a breach, unless the earlier one has arrived after the
// letters were listed and its version is replaced: one of these is not enough.
func TestOnlyALateLetterOfAReplacedVersionMayComeOutOfTurn(t *testing.T) {
	for _, c := range []struct{ isLate, isReplaced bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		synctest.Test(t, func(t *testing.T) {
			g := newLedger(feed.LatestVersion, epk.HashV2)
			w := &world{ledger: g, box: newBox()}
			by, key := &instance{name: "a", world: w}, feed.Key("oslo")
			put := func(id string, lsn int64) feed.Change {
				change := feed.Change{ID: id, PartitionKey: key, LSN: lsn}
				l := feed.DeadLetter{ID: id, Change: change, Disposition: feed.DispositionHeld}
				w.box.letters[nameOf(key, id)], w.box.kept[nameOf(key, id)] = l, time.Now()
				g.noteWrite(key, id, lsn, false)
				return change
			}
			later := put("later", 7)
			if !c.isLate {
				put("first", 5)
			}
			time.Sleep(time.Second)
			w.box.listed[lister{by, key}] = time.Now()
			time.Sleep(time.Second)
			if c.isLate {
				put("first", 5)
			}
			if c.isReplaced {
				g.noteWrite(key, "first", 9, true)
			}
			w.inTurn(by, &feed.Batch{Redriven: true, Changes: []feed.Change{later}})
			if isBreach := len(g.broken) > 0; isBreach == (c.isLate && c.isReplaced) {
				t.Errorf("late %v, replaced %v: a breach: %v", c.isLate, c.isReplaced, isBreach)
			}
		})
	}
}
