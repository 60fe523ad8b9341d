package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// Actions on a unit from the page. Package admin does the work on leases.

// steerTimeout is how long the instances of a unit have to obey.
const steerTimeout = 30 * time.Second

// mostCommand is the largest size of a command, which names at most 1,000 changes.
const mostCommand = 1 << 20

// mostLines is how many leases or changes the answer to a command names.
const mostLines = 20

// Command is the body of POST /steer: something to do to a unit.
type Command struct {
	Unit      string `json:"unit"`
	Container string `json:"container"` // may be left out if only one unit has the name

	// Action is pause, resume, reset or skip for leases, or retry, release or drop for dead letters.
	Action string `json:"action"`

	// Preview lists the planned steps, and does nothing.
	Preview bool `json:"preview"`

	// Range is that of the leases that are meant; empty for all leases of the unit. A skip needs the range of a single
	// lease.
	Range string `json:"range"`

	// To is where a reset continues: beginning, now, a time, or how long ago, such as 15m.
	To string `json:"to"`

	// Key is a partition key, as a JSON array: the only key of a reset, and that of a release and of a letter.
	Key json.RawMessage `json:"key"`

	// Changes are the changes to skip, as the preview has named them.
	Changes []Failed `json:"changes"`

	Letter string `json:"letter"` // ID of a dead letter, to retry or to drop
	By     string `json:"by"`     // who, for the history; by default the user name of the request
	Reason string `json:"reason"` // why, for the history
}

// Failed is a change at which a lease fails: see [admin.FailedChange].
type Failed struct {
	ID  string          `json:"id"`
	Key json.RawMessage `json:"key"`
	LSN int64           `json:"lsn"`
}

// Outcome is the answer of POST /steer: the finished steps or, to a preview, the planned steps.
type Outcome struct {
	Lines   []string `json:"lines"`
	Changes []Failed `json:"changes"` // of the preview of a skip
	Error   *string  `json:"error"`   // why not all was done; Lines then has the finished steps

	isIdle bool // there was nothing to do
}

// action carries out a command, or describes the effect.
type action func(ctx context.Context, s *shown, c *Command) (Outcome, error)

// actions carry out a command, or describe the effect. They return the steps before an error.
var actions = map[string]action{
	"pause":   pause,
	"resume":  resume,
	"reset":   reset,
	"skip":    skip,
	"retry":   recorded(retry),
	"release": recorded(release),
	"drop":    recorded(drop),
}

// serveSteer answers POST /steer.
func (d *Dashboard) serveSteer(w http.ResponseWriter, r *http.Request) {
	var c Command
	reader := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostCommand))
	reader.DisallowUnknownFields()
	if err := reader.Decode(&c); err != nil {
		refuse(w, http.StatusBadRequest, "the body is no command: "+err.Error())
		return
	}
	do := actions[c.Action]
	if do == nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("action is %q: want pause, resume, reset, skip, retry, release or drop",
			c.Action))
		return
	}
	s, err := d.findUnit(r.Context(), name{c.Unit, c.Container})
	if err != nil {
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	user, _, _ := r.BasicAuth()
	c.By = cmp.Or(c.By, user, "somebody") + " at the dashboard of " + cmp.Or(d.o.Name, "a process")
	ctx, cancel := context.WithTimeout(r.Context(), steerTimeout)
	defer cancel()
	done, err := do(ctx, s, &c)
	if done.Error = textOf(err); done.Error != nil {
		*done.Error = strings.TrimPrefix(*done.Error, feed.ErrBadRequest.Error()+": ")
	}
	done.Lines, done.Changes = emptyIfNil(done.Lines), emptyIfNil(done.Changes)
	answer(w, codeOf(err), done)
}

// emptyIfNil makes a slice that is an array in JSON.
func emptyIfNil[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

// codeOf is the status of an answer with an error of an action.
func codeOf(err error) int {
	for _, of := range []struct {
		error
		status int
	}{
		{nil, http.StatusOK},
		{admin.ErrNotServed, http.StatusGatewayTimeout},
		{feed.ErrNotFound, http.StatusNotFound},
		{feed.ErrBadRequest, http.StatusBadRequest},
		{feed.ErrAhead, http.StatusBadRequest},
		{feed.ErrTooOld, http.StatusBadRequest},
		{errors.ErrUnsupported, http.StatusBadRequest},
		{feed.ErrConflict, http.StatusConflict},
		{feed.ErrForeignOwner, http.StatusConflict},
		{feed.ErrGone, http.StatusConflict}, // the partition was split
		{errFailedAgain, http.StatusUnprocessableEntity},
	} {
		if errors.Is(err, of.error) {
			return of.status
		}
	}
	return http.StatusBadGateway
}

// bad is an error about a member of a command.
func bad(member, value, want string) error {
	return fmt.Errorf("%w: %s is %q: want %s", feed.ErrBadRequest, member, value, want)
}

// openUnit opens the unit for a command.
func (c *Command) openUnit(s *shown) *admin.Unit {
	return admin.Open(s.Source, s.Leases, admin.Options{By: c.By, Reason: c.Reason, DryRun: c.Preview})
}

// chosenLeases returns the leases that are meant.
func (c *Command) chosenLeases() (admin.Selection, error) {
	if c.Range == "" {
		return admin.All(), nil
	}
	r, err := feed.ParseRange(c.Range)
	if err != nil {
		return admin.Selection{}, bad("range", c.Range, "the range of a lease, such as 05C1-0BF3")
	}
	return admin.Of(r), nil
}

// key returns the partition key; empty if there is none.
func (c *Command) key() (feed.PartitionKey, error) {
	if len(c.Key) == 0 || string(c.Key) == "null" {
		return "", nil
	}
	key, err := pkey.Canonical(string(c.Key))
	if err != nil {
		return "", bad("key", string(c.Key), `a partition key as a JSON array, such as ["oslo"]`)
	}
	return key, nil
}

// pause pauses leases.
func pause(ctx context.Context, s *shown, c *Command) (Outcome, error) {
	chosen, err := c.chosenLeases()
	if err != nil {
		return Outcome{}, err
	}
	steps, err := c.openUnit(s).Pause(ctx, chosen)
	done := outcomeOf(c, steps, admin.Step.String)
	if len(steps) > 0 && steps[0].Earlier != nil {
		before := steps[0].Earlier
		done.Lines = append(done.Lines, fmt.Sprintf("%s had paused %s already, %s: that pause stays as it is",
			cmp.Or(before.By, "somebody"), before.Of, cmp.Or(before.Reason, "without a reason")))
	}
	return done, err
}

// resume ends a pause.
func resume(ctx context.Context, s *shown, c *Command) (Outcome, error) {
	chosen, err := c.chosenLeases()
	if err != nil {
		return Outcome{}, err
	}
	steps, err := c.openUnit(s).Resume(ctx, chosen)
	return outcomeOf(c, steps, admin.Step.String), err
}

// reset makes leases, or a key, continue elsewhere. A preview says how many changes that moves.
func reset(ctx context.Context, s *shown, c *Command) (Outcome, error) {
	chosen, err := c.chosenLeases()
	if err != nil {
		return Outcome{}, err
	}
	to, err := c.startOf()
	if err != nil {
		return Outcome{}, err
	}
	key, err := c.key()
	if err != nil {
		return Outcome{}, err
	}
	u := c.openUnit(s)
	var steps []admin.Step
	switch {
	case key != "" && c.Range != "":
		return Outcome{}, bad("range", c.Range, "nothing beside key, because the key says which lease has it")
	case key != "":
		steps, err = u.ResetKey(ctx, key, to)
	default:
		steps, err = u.Reset(ctx, chosen, to)
	}
	return outcomeOf(c, steps, func(step admin.Step) string {
		if c.Preview {
			if moved, known := u.Moved(ctx, step); known {
				return step.String() + ": " + step.Effect(moved)
			}
		}
		return step.String()
	}), err
}

// startOf returns where a reset continues.
func (c *Command) startOf() (feed.Start, error) {
	if ago, err := time.ParseDuration(c.To); err == nil && ago > 0 {
		return feed.FromAgo(ago), nil
	}
	to, err := feed.ParseStart(c.To)
	if err != nil {
		return to, bad("to", c.To, "beginning, now, a time such as 2026-01-31T15:04:05Z, or how long ago, such as 15m")
	}
	return to, nil
}

// outcomeOf tells the steps that were done, or would be.
func outcomeOf(c *Command, steps []admin.Step, text func(admin.Step) string) (done Outcome) {
	steps = slices.DeleteFunc(slices.Clone(steps), func(s admin.Step) bool { return !s.Done && !c.Preview })
	for i, s := range steps {
		if i == mostLines {
			done.Lines = append(done.Lines, fmt.Sprintf("and %d more leases", len(steps)-i))
			break
		}
		done.Lines = append(done.Lines, text(s))
	}
	return done
}

// skip gives up the changes at which a lease fails. A preview names those of the batch that has failed for the longest.
func skip(ctx context.Context, s *shown, c *Command) (Outcome, error) {
	chosen, err := c.chosenLeases()
	if err == nil && c.Range == "" {
		err = bad("range", "", "the range of the lease that fails")
	}
	if err != nil {
		return Outcome{}, err
	}
	u := c.openUnit(s)
	all, err := u.Failing(ctx, chosen)
	switch {
	case err != nil:
		return Outcome{}, err
	case len(all) == 0:
		return Outcome{}, fmt.Errorf("%w: no change of %s fails: there is nothing to skip", feed.ErrNotFound, c.Range)
	case c.Preview:
		return outcomeOfSkip(all[0], "would skip"), nil
	case len(c.Changes) == 0:
		return Outcome{}, bad("changes", "", "those that the preview has named")
	}
	for _, f := range all {
		if f.Changes = meant(f.Changes, c.Changes); len(f.Changes) == len(c.Changes) {
			f.More = false
			done, err := u.Skip(ctx, f)
			if !done.Done {
				return Outcome{}, err
			}
			return outcomeOfSkip(done, "skipped"), err
		}
	}
	return Outcome{}, fmt.Errorf("%w: not all of these changes fail any more: look again", feed.ErrConflict)
}

// meant are the changes that a command names, whose keys programs may spell in another way than the preview has.
func meant(all []admin.FailedChange, named []Failed) []admin.FailedChange {
	isNamed := map[admin.FailedChange]bool{}
	for _, n := range named {
		key, _ := pkey.Canonical(string(n.Key)) // empty for an invalid key, which no change has
		isNamed[admin.FailedChange{ID: n.ID, Key: key, LSN: n.LSN}] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(f admin.FailedChange) bool {
		return !isNamed[admin.FailedChange{ID: f.ID, Key: f.Key, LSN: f.LSN}]
	})
}

// outcomeOfSkip tells the changes that were skipped, or would be.
func outcomeOfSkip(f admin.Failing, verb string) (done Outcome) {
	for i, c := range f.Changes {
		done.Changes = append(done.Changes, Failed{c.ID, json.RawMessage(c.Key), c.LSN})
		if i < mostLines {
			done.Lines = append(done.Lines, fmt.Sprintf("%s change %q of key %s, LSN %d, which has failed %d times since %s",
				verb, c.ID, c.Key, c.LSN, f.Attempts, f.Since.UTC().Format(time.RFC3339)))
		}
	}
	if more := len(f.Changes) - mostLines; more > 0 {
		done.Lines = append(done.Lines, fmt.Sprintf("and %d more changes", more))
	}
	return done
}
