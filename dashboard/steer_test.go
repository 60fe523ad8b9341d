package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// steer sends a command, as the page does.
func steer(t *testing.T, d *Dashboard, c string) (status int, done Outcome) {
	t.Helper()
	w := httptest.NewRecorder()
	d.ServeHTTP(w, steering(t.Context(), c))
	if err := json.Unmarshal(w.Body.Bytes(), &done); err != nil {
		t.Fatalf("%s: %d %s: %v", c, w.Code, w.Body.String(), err)
	}
	return w.Code, done
}

// steering is a request with a command.
func steering(ctx context.Context, c string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/steer", strings.NewReader(c))
	r.Host = "localhost:8090"
	r.Header.Set("Content-Type", "application/json")
	return r
}

// told are the lines and the error of an outcome.
func (o Outcome) told() string {
	text := strings.Join(o.Lines, "\n")
	if o.Error != nil {
		text += "\nerror: " + *o.Error
	}
	return text
}

// recorder is a handler that remembers the ids of what it has handled, and fails while it is told to.
type recorder struct {
	mu     sync.Mutex
	ids    []string
	broken string // ID of a document that fails; empty if none does
}

func (r *recorder) Handle(_ context.Context, b *feed.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(b.Changes, func(c feed.Change) bool { return c.ID == r.broken }) {
		return errBroken
	}
	for _, c := range b.Changes {
		r.ids = append(r.ids, c.ID)
	}
	return nil
}

// got returns the ids since the last call.
func (r *recorder) got() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := strings.Join(r.ids, " ")
	r.ids = nil
	return got
}

func (r *recorder) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = ""
}

// A preview says what a command would do and does nothing; the command does it, and the history says who and why.
func TestAUnitIsSteered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		var r recorder
		w.write("oslo", `{"id":"1","city":"oslo"}`)
		w.start("a", &r, changefeed.Options{})
		time.Sleep(time.Minute) // for the unit to be made, and the change to be handled
		d := New(Options{Name: "mailer-1", Write: true})
		defer d.Show(w.unit(nil))()
		unit := admin.Open(w.orders, w.leases, admin.Options{})
		expect := func(command string, code int, want ...string) {
			t.Helper()
			got, done := steer(t, d, `{"unit":"mailer",`+command+`}`)
			for _, text := range want {
				if !strings.Contains(done.told(), text) {
					t.Errorf("%s: %s, want %q", command, done.told(), text)
				}
			}
			if got != code {
				t.Errorf("%s: %d, want %d", command, got, code)
			}
		}
		states := func(want admin.State) {
			t.Helper()
			l, err := unit.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, lease := range l.Leases {
				if lease.State != want {
					t.Errorf("lease %s is %s, want %s", lease.Token, lease.State, want)
				}
			}
		}
		handled := func(want string) {
			t.Helper()
			time.Sleep(time.Minute) // for the instance to obey, and to read
			if got := r.got(); got != want {
				t.Errorf("the handler got %q, want %q", got, want)
			}
		}

		handled("1")
		expect(`"action":"pause","preview":true`, 200, "would pause lease -1F", "would pause lease 1F")
		states(admin.StateLive)
		expect(`"action":"pause","by":"ada","reason":"INC-7"`, 200, "paused lease -1F", "paused lease 1F")
		states(admin.StatePaused)
		expect(`"action":"pause","by":"bob"`, 200, "ada at the dashboard of mailer-1 had paused",
			"INC-7: that pause stays")
		w.write("oslo", `{"id":"2","city":"oslo"}`)
		handled("")
		expect(`"action":"resume","preview":true`, 200, "would resume lease -1F")
		handled("")
		expect(`"action":"resume"`, 200, "resumed lease -1F")
		handled("2")
		expect(`"action":"reset","to":"beginning","preview":true`, 200, ": 2 changes again", ": no change between them")
		handled("")
		expect(`"action":"reset","to":"beginning","key":["oslo"],"preview":true`, 200, `would reset key ["oslo"]`,
			"2 changes again")
		expect(`"action":"reset","to":"beginning","key":["oslo"]`, 200, `reset key ["oslo"]`)
		handled("1 2")
		expect(`"action":"reset","to":"beginning"`, 200, "reset lease -1F", "reset lease 1F")
		handled("1 2")
		expect(`"action":"reset","to":"24h"`, 200, "reset lease")
		handled("1 2")

		history, err := unit.History(t.Context())
		if err != nil || len(history) == 0 || history[0].By != "ada at the dashboard of mailer-1" ||
			history[0].Reason != "INC-7" || history[0].Action != admin.ActionPause {
			t.Errorf("the history is %+v %v, want a pause by ada for INC-7 first", history, err)
		}
	})
}

// A skip gives up what its preview has named, and nothing else.
func TestWhatFailsIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := recorder{broken: "2"}
		for _, id := range []string{"1", "2", "3"} {
			w.write("oslo", `{"id":"`+id+`","city":"oslo"}`)
		}
		w.start("a", &r, changefeed.Options{})
		time.Sleep(time.Minute) // for the batch to fail
		d := New(Options{Write: true})
		defer d.Show(w.unit(nil))()
		code, shown := steer(t, d, `{"unit":"mailer","action":"skip","range":"-FF","preview":true}`)
		if code != http.StatusOK || len(shown.Changes) != 3 || shown.Changes[1].ID != "2" ||
			!strings.Contains(shown.told(), `would skip change "2" of key ["oslo"], LSN 2, which has failed`) {
			t.Fatalf("%d %s %+v, want the batch that fails", code, shown.told(), shown.Changes)
		}
		r.got()
		later := Failed{ID: "2", Key: json.RawMessage(`["oslo"]`), LSN: 3}
		command := func(changes []byte) string {
			return `{"unit":"mailer","action":"skip","range":"-FF","changes":` + string(changes) + `}`
		}
		for _, others := range [][]Failed{{later}, {shown.Changes[1], later}} {
			text, _ := json.Marshal(others)
			if code, got := steer(t, d, command(text)); code != 409 {
				t.Errorf("a change that does not fail is skipped: %d %s", code, got.told())
			}
		}
		named, _ := json.Marshal(shown.Changes[1:2])
		code, got := steer(t, d, command(named))
		if code != http.StatusOK || !strings.Contains(got.told(), `skipped change "2"`) {
			t.Errorf("%d %s, want that change 2 is skipped", code, got.told())
		}
		time.Sleep(time.Minute) // for the lease to go on
		if got := r.got(); got != "1 3" {
			t.Errorf("after the skip the handler got %q, want 1 3", got)
		}
		code, got = steer(t, d, command(named))
		if code != http.StatusNotFound || !strings.Contains(got.told(), "nothing to skip") {
			t.Errorf("the second skip: %d %s, want that nothing fails", code, got.told())
		}
	})
}

// Dead letters are retried, released and removed; a preview does none of this.
func TestLettersAreSteered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		box := w.letters()
		r := recorder{broken: "1"}
		for _, id := range []string{"1", "2"} {
			w.write("oslo", `{"id":"`+id+`","city":"oslo"}`)
		}
		w.start("a", &r, changefeed.Options{
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box, HoldKeys: true},
		})
		time.Sleep(time.Minute) // for the first to be parked, and the second to be held
		d := New(Options{Write: true})
		u := w.unit(nil)
		u.Letters = box
		defer d.Show(u)()
		_, all := ask[Letters](t, d, "/letters?unit=mailer")
		if len(all.Letters) != 2 || all.Letters[1].Disposition != "held" {
			t.Fatalf("letters %+v, want a failed and a held one", all.Letters)
		}
		command := func(action string, i int, more string) (int, string) {
			t.Helper()
			code, done := steer(t, d,
				`{"unit":"mailer","action":"`+action+`","key":["oslo"],"letter":"`+all.Letters[i].ID+`"`+more+`}`)
			return code, done.told()
		}
		expect := func(action string, i int, more string, code int, want string) {
			t.Helper()
			if got, told := command(action, i, more); got != code || !strings.Contains(told, want) {
				t.Errorf("%s %d %s: %d %s, want %d %s", action, i, more, got, told, code, want)
			}
		}
		left := func(want int) {
			t.Helper()
			if _, now := ask[Letters](t, d, "/letters?unit=mailer"); len(now.Letters) != want {
				t.Errorf("%d letters, want %d", len(now.Letters), want)
			}
		}
		const preview = `,"preview":true`
		expect("retry", 0, preview, 200, "would give the handler letter "+all.Letters[0].ID)
		expect("release", 0, preview, 200, `would let key ["oslo"] go on`)
		expect("drop", 0, preview, 200, "would remove letter "+all.Letters[0].ID)
		expect("drop", 1, preview, 200, "if the key is held, it stays held")
		expect("retry", 1, "", 400, "held behind an earlier one")
		left(2)
		expect("retry", 0, "", 422, "the handler has failed again: "+errBroken.Error())
		left(2)
		expect("drop", 0, `,"reason":"INC-7"`, 200, "removed letter "+all.Letters[0].ID)
		left(1)
		expect("drop", 0, "", 404, `key ["oslo"] has no dead letter `+all.Letters[0].ID)
		expect("release", 0, "", 200, `key ["oslo"] is released; 1 held letter handled`)
		left(0)
		if got := r.got(); got != "2" {
			t.Errorf("the handler got %q, want the held change", got)
		}
		expect("release", 0, "", 200, "nothing to do, because it is not held")
		_, about := ask[Explanation](t, d, "/explain?unit=mailer&lease=-FF")
		var said strings.Builder
		for _, a := range about.History {
			fmt.Fprintf(&said, "%s, %d of %d %s, %s by %s\n", a.Action, a.Done, a.Count, a.Failed, a.Reason, a.By)
		}
		const somebody = "by somebody at the dashboard of a process\n"
		if want := "retry, 0 of 1 letter " + all.Letters[0].ID + ": the handler has failed again: " +
			errBroken.Error() + ",  " + somebody + "drop, 1 of 1 , INC-7 " + somebody + "release, 1 of 1 ,  " +
			somebody +
			"release, 0 of 1 nothing to do,  " + somebody; said.String() != want {
			t.Errorf("the history of the lease is\n%swant\n%s", said.String(), want)
		}
		w.write("oslo", `{"id":"1","city":"oslo","n":2}`)
		time.Sleep(time.Minute) // for it to be parked
		r.heal()
		_, all = ask[Letters](t, d, "/letters?unit=mailer")
		expect("retry", 0, "", 200, "is handled")
		left(0)
	})
}

// letters makes a box of dead letters in the store of the world.
func (w *world) letters() feed.LetterBox {
	w.t.Helper()
	spec := docstore.ContainerSpec{ID: "letters", Paths: []string{deadletters.KeyPath}}
	in, err := w.db.CreateContainer(w.t.Context(), spec)
	if err != nil {
		w.t.Fatal(err)
	}
	box, err := deadletters.Container(in, "mailer", w.orders)
	if err != nil {
		w.t.Fatal(err)
	}
	return box
}

// A wrong command is refused with the member, its value and what would be right, and changes nothing.
func TestAWrongCommandIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{Write: true})
		defer d.Show(w.unit(nil))()
		for command, want := range map[string]string{
			`{"unit":"mailer"`:                                               "the body is no command",
			`{"unit":"mailer","acton":"pause"}`:                              `unknown field "acton"`,
			`{"unit":"mailer","action":"stop"}`:                              `action is "stop": want pause`,
			`{"unit":"nobody","action":"pause"}`:                             "no such unit",
			`{"unit":"mailer","action":"pause","range":"x"}`:                 `range is "x": want`,
			`{"unit":"mailer","action":"reset"}`:                             `to is "": want beginning`,
			`{"unit":"mailer","action":"reset","to":"-5m"}`:                  `to is "-5m": want beginning`,
			`{"unit":"mailer","action":"reset","to":"now","key":"a"}`:        `key is "\"a\"": want a partition key`,
			`{"unit":"mailer","action":"reset","to":"now","key":[[]]}`:       "want a partition key",
			`{"unit":"mailer","action":"skip"}`:                              `range is "": want`,
			`{"unit":"mailer","action":"retry","key":["a"]}`:                 `letter is "": want`,
			`{"unit":"mailer","action":"retry","letter":"1.0"}`:              "and its key in key",
			`{"unit":"mailer","action":"drop","key":[1],"letter":"1"}`:       "no access to the dead letters",
			`{"unit":"mailer","action":"release"}`:                           `key is "": want`,
			`{"unit":"mailer","action":"pause"}`:                             "the unit has no leases",
			`{"unit":"mailer","action":"reset","to":"2999-01-01T00:00:00Z"}`: "has no leases",
			`{"unit":"` + strings.Repeat("a", mostCommand) + `"}`:            "request body too large",
		} {
			r := httptest.NewRecorder()
			d.ServeHTTP(r, steering(t.Context(), command))
			var got struct{ Error string }
			if err := json.Unmarshal(r.Body.Bytes(), &got); err != nil || !strings.Contains(got.Error, want) ||
				r.Code < 400 || r.Code >= 500 {
				t.Errorf("%.80s: %d %s, want %q", command, r.Code, r.Body.String(), want)
			}
		}
	})
}

// Whoever goes while the instances of a unit have not obeyed gets nothing done: what was asked is withdrawn.
func TestACommandEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		var r recorder
		w.write("oslo", `{"id":"1","city":"oslo"}`)
		w.start("a", &r, changefeed.Options{})
		time.Sleep(time.Minute) // for the unit to be made
		d := New(Options{Write: true})
		defer d.Show(w.unit(nil))()
		ctx, cancel := context.WithCancel(t.Context())
		answer := httptest.NewRecorder()
		ended := make(chan bool)
		go func() {
			d.ServeHTTP(answer, steering(ctx, `{"unit":"mailer","action":"reset","to":"beginning"}`))
			close(ended)
		}()
		cancel()
		<-ended
		time.Sleep(5 * time.Minute) // for the instance to read anything that is left
		if answer.Code == http.StatusOK {
			t.Errorf("%d %s, want that nobody has obeyed", answer.Code, answer.Body.String())
		}
		if got := r.got(); got != "1" {
			t.Errorf("the handler got %q, want the change once", got)
		}
	})
}

// After a failure only what was done is told; a preview tells all. Many steps are not all named.
func TestOnlyWhatWasDoneIsTold(t *testing.T) {
	var steps []admin.Step
	for _, token := range []string{"1", "2"} {
		lease := feed.Lease{Token: token}
		steps = append(steps, admin.Step{Action: admin.ActionPause, Lease: lease, Done: token == "1"})
	}
	if got := outcomeOf(new(Command), steps, admin.Step.String).told(); got != "paused lease 1" {
		t.Errorf("told %q", got)
	}
	got := outcomeOf(&Command{Preview: true}, steps, admin.Step.String).told()
	if got != "paused lease 1\nwould pause lease 2" {
		t.Errorf("told %q", got)
	}
	steps = nil
	for range mostLines + 2 {
		steps = append(steps, admin.Step{Action: admin.ActionPause, Done: true})
	}
	lines := outcomeOf(new(Command), steps, admin.Step.String).Lines
	if len(lines) != mostLines+1 || lines[mostLines] != "and 2 more leases" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	var many admin.Failing
	for range mostLines + 3 {
		many.Changes = append(many.Changes, admin.FailedChange{ID: "1"})
	}
	skipped := outcomeOfSkip(many, "skipped")
	if len(skipped.Changes) != mostLines+3 || len(skipped.Lines) != mostLines+1 ||
		skipped.Lines[mostLines] != "and 3 more changes" {
		t.Errorf("%d changes and %d lines", len(skipped.Changes), len(skipped.Lines))
	}
}
