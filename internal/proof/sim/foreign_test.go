package sim

import (
	"encoding/json"
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/notes"
)

// A .NET host does not know which keys its lease sets aside. It has the lease in memory, so that is so also until it
// hears that an operator has deleted the lease.
func TestADotNetHostMayPassOnlyAKeyThatItsLeaseSetsAside(t *testing.T) {
	for _, c := range []struct{ isAside, isDeleted bool }{{true, false}, {true, true}, {false, false}, {false, true}} {
		g, key := newLedger(feed.LatestVersion, epk.HashV2), feed.Key("oslo")
		g.noteWrite(key, "first", 5, false)
		g.noteWrite(key, "later", 7, false)
		lease := feed.Record{Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"6"`)}
		if c.isAside {
			text, err := json.Marshal(notes.Aside{Keys: []notes.AsideKey{{Key: string(key), From: `"4"`, LSN: 5}}})
			if err != nil {
				t.Fatal(err)
			}
			lease.Properties = map[string]string{notes.AsideProperty: string(text)}
		}
		if c.isDeleted {
			g.model.deleted = append(g.model.deleted, lease)
		} else {
			g.model.leases[lease.Token] = kept{lease, nil}
		}
		host := &netHost{name: "net-a", ended: t.Context()}
		later := []feed.Change{{ID: "later", PartitionKey: key, LSN: 7}}
		g.handOverTo(t.Context(), host, lease.Token, lease.Range, later)
		if isBreach := len(g.broken) > 0; isBreach == c.isAside {
			t.Errorf("set aside %v, deleted %v: a breach: %v", c.isAside, c.isDeleted, g.broken)
		}
	}
}
