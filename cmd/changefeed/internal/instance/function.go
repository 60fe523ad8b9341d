package instance

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A Function is what an instance does as the trigger of Azure Functions does it: the unit may have no name, and its
// start concerns new leases only.
type Function struct {
	Name           string
	Source, Leases place.Address
	Throughput     int // of a lease container that is made; 0 leaves the choice to the account
}

// storeGrain is the grain of the times of a store.
const storeGrain = time.Second

// startOfFunction returns the start for a unit with these records. As in Azure, the start of function.json is for new
// leases: a unit that exists goes on, whatever its function.json says now. Leases of Azure without a position begin
// when the unit was made, and not now, so no change is lost between the two hosts.
func startOfFunction(o changefeed.Options, records []feed.Record) feed.Start {
	at := slices.IndexFunc(records, func(record feed.Record) bool { return record.Kind == feed.KindInfo })
	isLease := func(record feed.Record) bool { return record.Kind == feed.KindLease }
	switch {
	case o.Mode == feed.AllVersionsAndDeletes && (at >= 0 || slices.ContainsFunc(records, isLease)):
		return feed.Start{}
	case at < 0:
		return o.Start
	case records[at].Properties[notes.OptionProperty] != "": // made here, or continued here before
		return feed.Start{}
	case o.Start.IsNow():
		return feed.FromTime(records[at].Updated.Add(-storeGrain))
	}
	return o.Start
}

// boxName returns the name for the dead letters of a unit. If the unit is that of a function and has no name, boxName
// returns a name that no other unit can have, such as /Copies.
func (s *Settings) boxName() string {
	if s.Function == nil || s.Name != "" {
		return s.Name
	}
	return unit.Unnamed + s.Function.Name
}

// explainRefusal explains why a unit does not fit a function.
func (f *Function) explainRefusal(err error) error {
	const anew = "to begin anew, set another leaseContainerPrefix"
	switch {
	case errors.Is(err, feed.ErrModeChanged):
		return fmt.Errorf("changeFeedMode differs from that of the leases in %s: %s: %w", f.Leases.String(), anew, err)
	case errors.Is(err, feed.ErrForeignLease):
		return fmt.Errorf("leases in %s cannot be continued: %s: %w", f.Leases.String(), anew, err)
	}
	return err
}
