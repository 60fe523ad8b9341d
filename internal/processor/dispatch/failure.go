package dispatch

import (
	"cmp"
	"errors"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
)

// failureOf is what a handler's error says of a batch of so many changes: of all of it, where it names none, or one that
// the batch does not have.
func failureOf(err error, changes int, late bool) delivery.Failure {
	f := delivery.Failure{Err: err, Hopeless: feed.IsPoison(err), Late: late}
	said, ok := errors.AsType[*feed.Failure](err)
	if !ok || said == nil {
		return f
	}
	f.After, f.Outage = said.After, said.Outage
	fits := 0 <= said.Done && said.Done < changes
	for i := range said.Items {
		fits = fits && 0 <= i && i < changes
	}
	last := &delivery.Part{Hopeless: true}
	for i := 0; fits && i < changes; i++ {
		cause, failed := said.Items[i]
		if !failed && (len(said.Items) > 0 || said.Done == 0 || i < said.Done) {
			continue
		}
		cause = cmp.Or(cause, err) // to name a change is to say that it failed, whatever the cause
		part := &delivery.Part{Err: cause, Hopeless: feed.IsPoison(cause), Untried: cause == feed.ErrUntried}
		// Poison takes no other change with it to the dead letters.
		if last.Hopeless || part.Hopeless || part.Untried != last.Untried {
			f.Left, last = append(f.Left, part), part
		}
		last.Changes = append(last.Changes, i)
	}
	return f
}

// probeErrors calls all code of the handler that is in the failure.
func probeErrors(f *feed.Failure) {
	for _, err := range f.Items {
		if err != nil {
			_ = err.Error()
		}
	}
}
