package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
)

// failureOf is the meaning of a handler's error for a batch of so many changes: the whole batch has failed if the error
// names no change, or a change that the batch does not have.
func failureOf(err error, changes int, late bool) delivery.Failure {
	f := delivery.Failure{Err: err, Hopeless: feed.IsPoison(err), Late: late}
	said, ok := errors.AsType[*feed.Failure](err)
	if !ok || said == nil {
		return f
	}
	f.After, f.Outage = said.After, said.Outage
	if misfit := misfit(said, changes); misfit != nil {
		f.Err = fmt.Errorf("%w (the whole batch has failed: %w)", err, misfit)
		return f
	}
	if len(said.Items) == 0 && said.Done > 0 { // no change is named: several changes are divided, also for poison
		rest := &delivery.Part{Err: err, Hopeless: feed.IsPoison(err)}
		for i := said.Done; i < changes; i++ {
			rest.Changes = append(rest.Changes, i)
		}
		f.Left = []*delivery.Part{rest}
		return f
	}
	last := &delivery.Part{Hopeless: true}
	for _, i := range slices.Sorted(maps.Keys(said.Items)) {
		cause := cmp.Or(said.Items[i], err) // a named change has failed, whatever the cause
		part := &delivery.Part{Err: cause, Hopeless: feed.IsPoison(cause), Untried: cause == feed.ErrUntried}
		// Poison takes no other change with it to the dead letters.
		if last.Hopeless || part.Hopeless || part.Untried != last.Untried {
			f.Left, last = append(f.Left, part), part
		}
		last.Changes = append(last.Changes, i)
	}
	return f
}

// misfit is why a handler's failure does not fit a batch of so many changes; nil if the failure fits.
func misfit(said *feed.Failure, changes int) error {
	if said.Done < 0 || said.Done >= changes {
		return fmt.Errorf("Failure.Done is %d, want 0 to %d", said.Done, changes-1)
	}
	for _, i := range slices.Sorted(maps.Keys(said.Items)) {
		if i < 0 || i >= changes {
			return fmt.Errorf("Failure.Items names change %d, want 0 to %d", i, changes-1)
		}
	}
	untried := 0
	for _, cause := range said.Items {
		if cause == feed.ErrUntried {
			untried++
		}
	}
	if untried == changes {
		return fmt.Errorf("Failure.Items has ErrUntried for all %d changes, want the error of a change that has failed",
			changes)
	}
	return nil
}

// probeErrors calls all code of the handler that is in the failure.
func probeErrors(f *feed.Failure) {
	for _, err := range f.Items {
		if err != nil {
			_ = err.Error()
		}
	}
}
