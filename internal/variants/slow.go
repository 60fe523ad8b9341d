package variants

import (
	"encoding/json"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// Slow is a batch that is in the handler of an instance for too long, as the instance shows it. Times are durations,
// because the clock of the instance may differ from that of the store.
type Slow struct {
	Lease   string `json:"lease"`
	For     int64  `json:"for"`   // milliseconds in the handler when the record was written
	Usual   int64  `json:"usual"` // milliseconds that a batch usually takes; 0 if unknown
	Changes int    `json:"changes"`
}

// mostSlow is how many slow batches a record shows.
const mostSlow = 20

// ShowSlow writes the slow batches of an instance into its presence record.
func ShowSlow(record *feed.Record, all []feed.SlowBatch, now time.Time) {
	var shown []Slow
	for _, b := range all[:min(mostSlow, len(all))] {
		shown = append(shown, Slow{b.Lease, now.Sub(b.Since).Milliseconds(), b.Usual.Milliseconds(), b.Changes})
	}
	text := ""
	if len(shown) > 0 {
		list, _ := json.Marshal(shown) // always JSON
		text = string(list)
	}
	record.Properties = notes.Set(record.Properties, notes.SlowProperty, text)
}

// ReadSlow returns the slow batches in a presence record; none if the record does not tell.
func ReadSlow(record feed.Record) (all []Slow) {
	if json.Unmarshal([]byte(record.Properties[notes.SlowProperty]), &all) != nil {
		return nil
	}
	return all
}
